"""No process is left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from sglang_ppfix.lab.processes import end_group, start_group

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
