"""A port nobody has, and nobody gets before the server listens."""

import socket
import sys
import time

import pytest

from sglang_ppfix.lab import ports as ports_module
from sglang_ppfix.lab import server as server_module
from sglang_ppfix.lab.config import LabConfig
from sglang_ppfix.lab.errors import LabError
from sglang_ppfix.lab.ports import free_port
from sglang_ppfix.lab.profile_file import stage_profile
from sglang_ppfix.lab.server import LabServer

# What SGLang 0.5.23 logs where its port is taken; it does not end then.
NOT_BOUND = (
    "[2026-11-30 03:55:49] ERROR:    [Errno 98] error while attempting to bind on "
    "address ('127.0.0.1', 35389): address already in use"
)


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


@pytest.mark.parametrize("low", [32768, 12000])
def test_no_connection_is_given_the_port(monkeypatch, tmp_path, low) -> None:
    """A port that the kernel hands out is taken, now and then, by a connection of the
    stages before the server binds it (a run of CI waited 600 s for such a server)."""
    kernels_own = tmp_path / "ip_local_port_range"
    kernels_own.write_text(f"{low}\t60999\n")
    monkeypatch.setattr(ports_module, "_KERNELS_OWN", kernels_own)
    ports = {free_port("127.0.0.1", None) for _ in range(50)}
    assert len(ports) > 1
    assert all(1024 <= port < low for port in ports)


@pytest.mark.parametrize(
    ("says", "start_timeout_s", "line"),
    [
        (NOT_BOUND, 600, r"can't listen: .* address already in use$"),
        ("Load weight begin.", 1, r"did not answer in \d s; its log says: Load w"),
    ],
)
def test_a_server_that_will_not_answer_is_given_up(
    monkeypatch, tmp_path, says, start_timeout_s, line
) -> None:
    """Waiting for a server without its port, or not saying where another one stood,
    would fail here; its process must be gone, too."""
    program = f"import time; print({says!r}, flush=True); time.sleep(600)"
    monkeypatch.setattr(
        server_module, "command", lambda *given: [sys.executable, "-c", program]
    )
    monkeypatch.setattr(server_module.importlib.util, "find_spec", lambda name: True)
    config = LabConfig(stage_profile("40", 2), start_timeout_s=start_timeout_s)
    server = LabServer(config, tmp_path)
    begin = time.monotonic()
    with pytest.raises(LabError, match=line):
        server.start()
    assert time.monotonic() - begin < 60
    with pytest.raises(LabError, match="not running"):
        _ = server.pid
