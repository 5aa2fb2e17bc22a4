"""A real SGLang server on the CPU: start, wait until ready, stop, leave nothing."""

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from .config import LabConfig
from .errors import LabError
from .launch import HOST, command, environment, write_model
from .ports import free_port
from .processes import end_group, start_group
from .rank import DeviceFile
from .stage_time import StageProfile

_POLL_S = 0.25
_CAUSE = re.compile(r"sglang-ppfix\b|[\w.]*(Error|Exception|Exit)\b")
# SGLang does not end then: it waits ten minutes for its own warm-up.
_NOT_BOUND = re.compile(r"error while attempting to bind on address.*")


class LabServer:
    """A running server; a context manager.

    Attributes:
        config: what was asked for.
        folder: holds ``server.log``, the model's configuration and the traces.
        url: base address, known once the server was started.
    """

    def __init__(self, config: LabConfig, folder: Path | None = None) -> None:
        """Prepare a server; nothing runs yet.

        Args:
            config: what to run.
            folder: where logs and traces go; a temporary folder by default, removed
                when the server is stopped.
        """
        self.config = config
        self._temporary = None
        if folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="ppfix-lab-")
            folder = Path(self._temporary.name)
        self.folder = folder.resolve()
        self.url = ""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log_path(self) -> Path:
        """Standard output and error of all processes of the server."""
        return self.folder / "server.log"

    @property
    def trace_dir(self) -> Path:
        """One file a rank, see :mod:`sglang_ppfix.lab.trace`."""
        return self.folder / "trace"

    @property
    def pid(self) -> int:
        """Process id of the server, and id of its process group."""
        if self._process is None:
            raise LabError("the server is not running")
        return self._process.pid

    def __enter__(self) -> "LabServer":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server and return when it answers (half a minute and more).

        Raises:
            LabError: SGLang is missing, the port is taken, the server died or did not
                answer in time.
        """
        if importlib.util.find_spec("sglang") is None:
            raise LabError(
                f"sglang is not installed for {sys.executable}: "
                "pip install 'sglang-ppfix[sglang]'"
            )
        port = free_port(HOST, self.config.port)
        self.url = f"http://{HOST}:{port}"
        self.trace_dir.mkdir(parents=True, exist_ok=True)
        for old in self.trace_dir.glob("rank*.jsonl"):
            old.unlink()
        self._write_device(self.config.profile)
        model_folder = self.folder / "model"
        write_model(self.config, model_folder)
        # An empty folder: a folder named like a package would hide the package.
        working_folder = self.folder / "cwd"
        working_folder.mkdir(exist_ok=True)
        self._process = start_group(
            command(self.config, port, model_folder),
            working_folder,
            environment(self.config, self._device_file),
            self.log_path,
        )
        try:
            self._wait_ready()
        except BaseException:
            self.stop()
            raise

    def set_stage_times(self, profile: StageProfile) -> None:
        """Let the stages need other times from their next forward on.

        Raises:
            LabError: the number of stages differs.
        """
        if len(profile.stages) != self.config.pp_size:
            raise LabError(
                f"profile {profile.name}: {len(profile.stages)} stages, "
                f"the server has {self.config.pp_size}"
            )
        self._write_device(profile)

    @property
    def _device_file(self) -> Path:
        return self.folder / "device.json"

    def _write_device(self, profile: StageProfile) -> None:
        trace_dir = str(self.trace_dir) if self.config.trace else None
        DeviceFile(profile, trace_dir).write(self._device_file)

    def stop(self) -> None:
        """End every process of the server, and wait until they are gone.

        They are killed: SGLang's own way down waits 10 s for schedulers that do not
        listen under PP, and nothing of this server is worth keeping.
        """
        process, self._process = self._process, None
        if process is not None:
            end_group(process)
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def get(self, path: str, timeout_s: float = 10.0) -> Any:
        """GET ``path``, as JSON where it is JSON.

        Raises:
            LabError: no answer, or an error status.
        """
        return self._request(urllib.request.Request(self.url + path), timeout_s)

    def post(self, path: str, body: Any = None, timeout_s: float = 60.0) -> Any:
        """POST ``body`` as JSON to ``path``.

        Raises:
            LabError: no answer, or an error status.
        """
        request = urllib.request.Request(
            self.url + path,
            data=json.dumps(body or {}).encode(),
            headers={"Content-Type": "application/json"},
        )
        return self._request(request, timeout_s)

    def wait_idle(self, timeout_s: float = 60.0) -> None:
        """Return when no slot holds a request; the prefix cache is empty then.

        SGLang's ``/flush_cache`` succeeds only on a server that is idle on every slot.

        Raises:
            LabError: still busy after ``timeout_s``, or the server died.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                self.post("/flush_cache")
            except LabError:
                self.check_alive()
                if time.monotonic() > deadline:
                    raise LabError(
                        f"the server is still busy after {timeout_s:.0f} s"
                    ) from None
                time.sleep(_POLL_S)
            else:
                return

    def log(self) -> str:
        """The server's log so far."""
        return self.log_path.read_text(errors="replace")

    def check_alive(self) -> None:
        """Raise ``LabError`` with the end of the log if the server died."""
        if self._process is None:
            raise LabError("the server is not running")
        status = self._process.poll()
        if status is not None:
            raise LabError(f"the server ended with status {status}: {self._cause()}")

    def _cause(self) -> str:
        """The log line that says best why the server ended."""
        lines = [line for line in self.log().splitlines() if line.strip()]
        causes = [line for line in lines if _CAUSE.match(line)]
        return (causes or lines or ["no output"])[-1].strip()

    def _wait_ready(self) -> None:
        begin = time.monotonic()
        while True:
            self.check_alive()
            not_bound = _NOT_BOUND.search(self.log())
            if not_bound:
                raise LabError(f"the server can't listen: {not_bound.group()}")
            waited = time.monotonic() - begin
            if waited > self.config.start_timeout_s:
                raise LabError(
                    f"the server did not answer in {waited:.0f} s; "
                    f"its log says: {self._cause()}"
                )
            try:
                self.get("/health", timeout_s=2.0)
            except LabError:
                time.sleep(_POLL_S)
            else:
                return

    def _request(self, request: urllib.request.Request, timeout_s: float) -> Any:
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:
                body = answer.read()
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace").strip()
            raise LabError(
                f"{request.full_url}: HTTP {error.code}: {text[:200]}"
            ) from None
        except OSError as error:
            raise LabError(f"{request.full_url}: {error}") from None
        try:
            return json.loads(body)
        except ValueError:
            return body.decode(errors="replace")
