"""A port for a server that binds it only when its stages stand."""

import random
import socket
from pathlib import Path

from .errors import LabError

# The kernel gives connections a port above these, and the stages open many before the
# server binds its own; SGLang takes its process group's from 22000 on
# (``get_free_port_below_ephemeral``).
_PORTS = range(10000, 22000)
_TRIES = 64
_KERNELS_OWN = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port(host: str, wanted: int | None) -> int:
    """``wanted`` if it is free, else a free port that no connection will be given.

    Raises:
        LabError: ``wanted`` is taken, or not a port; or every port is taken.
    """
    if wanted is not None:
        reason = _why_not(host, wanted)
        if reason is not None:
            raise LabError(f"port {wanted}: {reason}")
        return wanted
    for port in random.sample(_quiet_ports(), _TRIES):
        if _why_not(host, port) is None:
            return port
    raise LabError(f"no free port on {host} in {_TRIES} tries; name one with --port")


def _quiet_ports() -> range:
    """Those of ``_PORTS`` below the ones that the kernel hands out itself."""
    low = int(_KERNELS_OWN.read_text().split()[0])
    quiet = range(_PORTS.start, min(_PORTS.stop, low))
    return quiet if len(quiet) >= _TRIES else _PORTS


def _why_not(host: str, port: int) -> str | None:
    """Why ``port`` can't be bound; None where it can."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            return getattr(error, "strerror", None) or "not a port"
    return None
