"""Real SGLang servers for tests: one at a time, kept while the next test wants it."""

import fcntl
import importlib.util
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sglang_ppfix.lab.config import LabConfig
from sglang_ppfix.lab.errors import LabError
from sglang_ppfix.lab.experiment import warm_up
from sglang_ppfix.lab.machine import check_machine
from sglang_ppfix.lab.server import LabServer

HERE = Path(__file__).parent

StartServer = Callable[[LabConfig], LabServer]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder starts servers."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.lab)


class ServerPool:
    """At most one running server; another configuration replaces it."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._running: LabServer | None = None

    def get(self, config: LabConfig) -> LabServer:
        """A running, idle, warmed-up server with ``config``.

        The server of the last test is taken when its configuration is the same and it
        is still alive; tests that want the same one should stand together.
        """
        server = self._running
        if server is not None and server.config == config:
            try:
                server.wait_idle()
            except LabError:
                pass
            else:
                return server
        self.stop()
        server = LabServer(config, self._folders.mktemp("server"))
        server.start()
        self._running = server
        warm_up(server)
        return server

    def stop(self) -> None:
        """Stop what is running."""
        server, self._running = self._running, None
        if server is not None:
            server.stop()


@pytest.fixture(scope="session")
def server_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerPool]:
    """The pool of this session; other sessions on this machine wait their turn."""
    if importlib.util.find_spec("sglang") is None:
        pytest.skip("sglang is not installed")
    try:
        check_machine(pp_size=2)
    except LabError as error:
        pytest.skip(str(error))
    lock = Path(tempfile.gettempdir()) / "sglang-ppfix-lab.lock"
    pool = ServerPool(tmp_path_factory)
    with lock.open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield pool
        pool.stop()


@pytest.fixture(scope="session")
def lab_server(server_pool: ServerPool) -> StartServer:
    """Function from a :class:`LabConfig` to a running server with it.

    Logs and traces stay in pytest's temporary folder: ``server.log()``,
    ``server.trace_dir``.
    """
    return server_pool.get
