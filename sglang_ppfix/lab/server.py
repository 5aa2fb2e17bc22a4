"""A real SGLang server on the CPU: start, wait until ready, stop, leave nothing."""

import ctypes
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from . import token_rule
from .config import LabConfig
from .errors import LabError
from .plugin import LAB_CONFIG
from .rank import DeviceFile

HOST = "127.0.0.1"
_POLL_S = 0.25
_STOP_S = 10.0
_PR_SET_PDEATHSIG = 1


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

    def start(self, on_wait: Callable[[float], None] | None = None) -> None:
        """Start the server and return when it answers.

        Args:
            on_wait: called with the seconds waited, several times a second.

        Raises:
            LabError: SGLang is missing, the port is taken, the server died or did not
                answer in time.
        """
        if importlib.util.find_spec("sglang") is None:
            raise LabError(
                f"sglang is not installed for {sys.executable}: "
                "pip install 'sglang-ppfix[sglang]'"
            )
        port = _port(self.config.port)
        self.url = f"http://{HOST}:{port}"
        self.trace_dir.mkdir(parents=True, exist_ok=True)
        device_file = self.folder / "device.json"
        DeviceFile(
            self.config.profile, str(self.trace_dir) if self.config.trace else None
        ).write(device_file)
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                self._command(port),
                # An empty folder: a folder named like a package would hide it.
                cwd=self._folder("cwd"),
                env=self._environment(device_file),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        try:
            self._wait_ready(on_wait)
        except BaseException:
            self._kill()
            raise

    def stop(self) -> None:
        """End every process of the server, and wait until they are gone."""
        self._kill()
        if self._temporary is not None:
            self._temporary.cleanup()

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
            lines = [line for line in self.log().splitlines() if line.strip()]
            tail = lines[-1] if lines else "no output"
            raise LabError(f"the server ended with status {status}: {tail}")

    def _command(self, port: int) -> list[str]:
        config = self.config
        command = [sys.executable, "-m", "sglang.launch_server"]
        options: dict[str, Any] = {
            "--model-path": self._model_folder(),
            "--load-format": "dummy",
            "--device": "cpu",
            "--attention-backend": "torch_native",
            "--pp-size": config.pp_size,
            "--max-running-requests": config.max_running_requests,
            "--max-total-tokens": config.kv_tokens,
            "--mem-fraction-static": 0.2,
            "--host": HOST,
            "--port": port,
        }
        if config.async_depth:
            options["--pp-async-batch-depth"] = config.async_depth
        if config.cap is not None:
            options["--pp-max-micro-batch-size"] = config.cap
        if config.chunked_prefill_size is not None:
            options["--chunked-prefill-size"] = config.chunked_prefill_size
        for name, value in options.items():
            command += [name, str(value)]
        return [*command, "--skip-tokenizer-init", *config.extra_args]

    def _environment(self, device_file: Path) -> dict[str, str]:
        cores = sorted(os.sched_getaffinity(0))
        ranks = range(self.config.pp_size)
        return {
            **os.environ,
            LAB_CONFIG: str(device_file),
            "SGLANG_EXTERNAL_MODEL_PACKAGE": "sglang_ppfix.lab.models",
            "SGLANG_CPU_OMP_THREADS_BIND": "|".join(
                str(cores[rank % len(cores)]) for rank in ranks
            ),
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "PYTHONUNBUFFERED": "1",
            **self.config.env,
        }

    def _folder(self, name: str) -> Path:
        path = self.folder / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _model_folder(self) -> Path:
        folder = self._folder("model")
        (folder / "config.json").write_text(json.dumps(_model_config(self.config)))
        return folder

    def _wait_ready(self, on_wait: Callable[[float], None] | None) -> None:
        begin = time.monotonic()
        while True:
            self.check_alive()
            waited = time.monotonic() - begin
            if waited > self.config.start_timeout_s:
                raise LabError(f"the server did not answer in {waited:.0f} s")
            if on_wait is not None:
                on_wait(waited)
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

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        # SGLang's own way down waits 10 s for schedulers that do not listen under PP,
        # and nothing of this server is worth keeping.
        _kill_group(process.pid)
        process.wait()
        deadline = time.monotonic() + _STOP_S
        while _kill_group(process.pid) and time.monotonic() < deadline:
            time.sleep(0.02)


def _model_config(config: LabConfig) -> dict[str, Any]:
    """A small Llama-shaped configuration: SGLang sizes its KV pool from it."""
    return {
        "architectures": ["ToyPipelineForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": config.pp_size,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": token_rule.VOCAB_SIZE,
        "max_position_embeddings": max(4096, config.kv_tokens),
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "torch_dtype": "bfloat16",
        "bos_token_id": token_rule.BOS,
        "eos_token_id": token_rule.EOS,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    }


def _port(wanted: int | None) -> int:
    """``wanted`` if it is free, else a free port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wanted or 0))
        except OSError as error:
            raise LabError(f"port {wanted}: {error.strerror}") from None
        return int(probe.getsockname()[1])


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
