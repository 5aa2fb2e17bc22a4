"""No process is left behind, and no port is taken from anybody."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sglang_ppfix.lab.errors import LabError
from sglang_ppfix.lab.processes import end_group, free_port, start_group

# A server whose child ignores every polite signal, and which leads it into the log.
STUBBORN = """
import os, signal, subprocess, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""


def wait_for(condition, seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def gone(pid: int) -> bool:
    """No process, or one that only waits to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def test_the_whole_group_ends(tmp_path) -> None:
    """Ending the leader only, or asking politely, would leave the child."""
    log = tmp_path / "log"
    command = [sys.executable, "-c", STUBBORN]
    process = start_group(command, tmp_path, dict(os.environ), log)
    assert wait_for(lambda: log.read_text().endswith("\n"))
    child = int(log.read_text())
    end_group(process)
    assert wait_for(lambda: gone(child) and gone(process.pid))


def test_a_killed_parent_takes_the_server_along(tmp_path) -> None:
    """Without the death signal a ``kill -9`` of the lab leaves its server running."""
    log = tmp_path / "log"
    script = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from sglang_ppfix.lab.processes import start_group\n"
        f"command = [sys.executable, '-c', {STUBBORN!r}]\n"
        f"path = Path({str(tmp_path)!r})\n"
        "print(start_group(command, path, dict(os.environ), path / 'log').pid,"
        " flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    server = int(parent.stdout.readline())
    assert wait_for(lambda: log.exists() and log.read_text().endswith("\n"))
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    try:
        assert wait_for(lambda: gone(server))
    finally:
        os.kill(int(log.read_text()), signal.SIGKILL)


def test_a_taken_port_is_named() -> None:
    """Starting on another port than asked for, or a traceback, would fail here."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(LabError, match=f"port {port}: Address already in use"):
            free_port("127.0.0.1", port)
        assert free_port("127.0.0.1", None) != port


def test_a_number_that_is_no_port_is_named() -> None:
    """An OverflowError must not reach the user."""
    with pytest.raises(LabError, match="port 99999: not a port"):
        free_port("127.0.0.1", 99999)
