"""Whether this machine can run the lab, and what it is, for the record."""

import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from .errors import LabError

MIN_CORES = 2
_SERVER_GIB = 1.5
_RANK_GIB = 0.75


def check_machine(pp_size: int) -> None:
    """Refuse a machine on which the lab cannot run.

    Args:
        pp_size: stages; each is a process of its own.

    Raises:
        LabError: not Linux, too few cores, or too little memory.
    """
    if sys.platform != "linux":
        raise LabError(f"needs Linux (gloo, process groups), this is {sys.platform}")
    cores = len(os.sched_getaffinity(0))
    if cores < MIN_CORES:
        raise LabError(f"needs {MIN_CORES} CPU cores, this process may use {cores}")
    needed = _SERVER_GIB + pp_size * _RANK_GIB
    available = available_gib()
    if available < needed:
        raise LabError(
            f"{pp_size} stages need about {needed:.1f} GiB of free memory, "
            f"{available:.1f} GiB are free"
        )


def available_gib() -> float:
    """Memory that this process may still use, GiB."""
    free = _field(Path("/proc/meminfo"), "MemAvailable:") / 1024**2
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
    except OSError:
        return free
    return free if limit == "max" else min(free, (int(limit) - used) / 1024**3)


def describe_machine() -> dict[str, Any]:
    """Cores, memory and versions; nothing that names the machine."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(_field(Path("/proc/meminfo"), "MemTotal:") / 1024**2, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "sglang": _version("sglang"),
        "torch": _version("torch"),
        "sglang_ppfix": _version("sglang-ppfix"),
    }


def _field(path: Path, name: str) -> float:
    for line in path.read_text().splitlines():
        if line.startswith(name):
            return float(line.split()[1])
    return float("inf")


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
