"""Processes of the operating system (Linux)."""

import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_STOP_S = 10.0
_PR_SET_PDEATHSIG = 1


def start_group(
    command: Sequence[str], folder: Path, env: Mapping[str, str], log: Path
) -> "subprocess.Popen[bytes]":
    """Start ``command`` as the leader of a process group that ends with this process.

    Args:
        command: program and arguments.
        folder: where it runs.
        env: its whole environment.
        log: file for its output.
    """
    # The kernel takes the end of the starting thread for the end of the parent.
    in_main_thread = threading.current_thread() is threading.main_thread()
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent if in_main_thread else None,
        )


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill the group that ``process`` leads, and wait until nothing is left of it."""
    _kill_group(process.pid)
    process.wait()
    deadline = time.monotonic() + _STOP_S
    while _kill_group(process.pid) and time.monotonic() < deadline:
        time.sleep(0.02)


def _die_with_parent() -> None:
    # Even a SIGKILL of the lab leaves no server behind (Linux).
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _kill_group(group: int) -> bool:
    """Kill what is left of a process group; whether anything was."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
