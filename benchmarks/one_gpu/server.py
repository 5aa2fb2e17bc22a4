"""The server under test: real SGLang with the plugin, on GPUs or in the CPU lab."""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cases import Case
from models import SHAPES

from sglang_ppfix.lab import one_gpu
from sglang_ppfix.lab.config import LabConfig
from sglang_ppfix.lab.plugin import LAB_CONFIG
from sglang_ppfix.lab.ports import free_port
from sglang_ppfix.lab.processes import end_group, start_group
from sglang_ppfix.lab.server import LabServer
from sglang_ppfix.lab.stage_time import (
    StageProfile,
    StageTime,
    default_prefill,
    parse_affine,
)

HOST = "127.0.0.1"
READY = "The server is fired up and ready to roll"
KV_TOKENS = 40_000
PLUGIN = {"SGLANG_PPFIX": "1", "SGLANG_PPFIX_LOG": "summary"}
START_LIMIT_S = 280.0
_TERMINATE_S = 4.0


class StartError(Exception):
    """The server did not come up; holds the end of its log."""


@dataclass(frozen=True)
class Placement:
    """Where the stages run.

    Attributes:
        device: ``cpu`` or ``cuda``.
        one_gpu: whether all stages share GPU 0.
        gpus: names of the visible cards.
    """

    device: str
    one_gpu: bool
    gpus: tuple[str, ...]

    def says(self, pp: int) -> str:
        """For the report."""
        if self.device == "cpu":
            return "emulated devices on the CPU (lab)"
        if self.one_gpu:
            return f"{pp} stages on one {self.gpus[0]}, {100 // pp} % of the SMs each"
        return f"{pp} stages on {pp} x {self.gpus[0]}, NCCL"


def place(device: str, pp: int) -> Placement:
    """One stage a card where there are enough cards, else all on the first."""
    if device == "cpu":
        return Placement("cpu", False, ())
    import pynvml

    pynvml.nvmlInit()
    cards = [
        pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(index))
        for index in range(pynvml.nvmlDeviceGetCount())
    ]
    driver = pynvml.nvmlSystemGetDriverVersion()
    pynvml.nvmlShutdown()
    if not cards:
        raise StartError("no GPU is visible")
    names = tuple(f"{card} (driver {driver})" for card in cards)
    return Placement("cuda", len(cards) < pp, names)


def server_for(case: Case, placement: Placement, folder: Path) -> Any:
    """A context manager with ``url`` and ``log_path``; the server runs inside it."""
    folder.mkdir(parents=True, exist_ok=True)
    if placement.device == "cpu":
        return _lab_server(case, folder)
    return GpuServer(case, placement, folder)


def _lab_server(case: Case, folder: Path) -> LabServer:
    decode = parse_affine("10+5*b", "stage time", "b")
    stage = StageTime(decode, default_prefill(decode))
    profile = StageProfile("toy", (stage,) * case.pp)
    config = LabConfig(profile, max_running_requests=case.rows, env=PLUGIN, trace=False)
    return LabServer(config, folder)


class GpuServer:
    """SGLang on one or several GPUs, with dummy weights."""

    def __init__(self, case: Case, placement: Placement, folder: Path) -> None:
        self.case, self.placement, self.folder = case, placement, folder
        self.log_path = folder / "server.log"
        self.url = ""
        self.start_s = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._mps: dict[str, str] = {}

    def __enter__(self) -> "GpuServer":
        if self.placement.one_gpu:
            self._start_mps()
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server, then the MPS daemon that this object started."""
        process, self._process = self._process, None
        if process is not None:
            # A client that MPS sees leave in order is the safer end.
            os.killpg(process.pid, signal.SIGTERM)
            deadline = time.monotonic() + _TERMINATE_S
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.2)
            end_group(process)
        if self._mps:
            control = ["nvidia-cuda-mps-control"]
            env = {**os.environ, **self._mps}
            subprocess.run(control, input=b"quit -t 5\n", env=env, check=False)
            self._mps = {}

    def _start_mps(self) -> None:
        """Several processes share the GPU at the same time, each a part of its SMs."""
        self._mps = {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.folder / "mps"),
            "CUDA_MPS_LOG_DIRECTORY": str(self.folder / "mps_log"),
        }
        for path in self._mps.values():
            Path(path).mkdir(exist_ok=True)
        env = {**os.environ, **self._mps}
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env=env, check=True)

    def _start(self) -> None:
        port = free_port(HOST, None)
        model = self.folder / "model"
        SHAPES[str(self.case.shape)].write(model)
        empty = self.folder / "cwd"
        empty.mkdir(exist_ok=True)
        begin = time.monotonic()
        self._process = start_group(
            self._command(port, model), empty, self._environment(), self.log_path
        )
        self.url = f"http://{HOST}:{port}"
        while READY not in self.log():
            if self._process.poll() is not None:
                raise StartError(f"the server ended:\n{self._causes()}")
            if time.monotonic() - begin > START_LIMIT_S:
                raise StartError(
                    f"not ready in {START_LIMIT_S:.0f} s:\n{self._causes()}"
                )
            time.sleep(0.5)
        self.start_s = time.monotonic() - begin

    def log(self) -> str:
        """The server's log so far."""
        return self.log_path.read_text(errors="replace")

    def _causes(self) -> str:
        lines = [line[:300] for line in self.log().splitlines()]
        return "\n".join(line for line in lines if "server_args=" not in line)[-6000:]

    def _command(self, port: int, model: Path) -> list[str]:
        case = self.case
        sizes = [*range(1, 9), *range(12, case.stock_cap + 1, 4)]
        options: dict[str, Any] = {
            "--model-path": model,
            "--load-format": "dummy",
            "--pp-size": case.pp,
            "--max-running-requests": case.rows,
            "--max-total-tokens": KV_TOKENS,
            "--context-length": 8192,
            "--mem-fraction-static": 0.93,
            "--attention-backend": "triton",
            "--sampling-backend": "pytorch",
            "--grammar-backend": "none",
            "--cuda-graph-backend-prefill": "disabled",
            "--random-seed": 1,
            "--host": HOST,
            "--port": port,
        }
        command = [
            sys.executable,
            "-m",
            "sglang.launch_server",
            "--skip-tokenizer-init",
        ]
        for name, value in options.items():
            command += [name, str(value)]
        command.append("--skip-tokenizer-init")
        return [*command, "--cuda-graph-bs-decode", *map(str, sizes)]

    def _environment(self) -> dict[str, str]:
        word = one_gpu.ONE_GPU if self.placement.one_gpu else one_gpu.ONE_STAGE_A_GPU
        env = {
            **os.environ,
            **PLUGIN,
            **self._mps,
            LAB_CONFIG: word,
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            # Kernels compiled at start: for this card only.
            "TORCH_CUDA_ARCH_LIST": "9.0a",
            "TVM_FFI_CUDA_ARCH_LIST": "9.0a",
        }
        if self.placement.one_gpu:
            share = 100 // self.case.pp
            env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(share)
        return env


def plugin_lines(log: str) -> list[str]:
    """What the plugin said at start-up, each line once, without times."""
    said = (re.sub(r"^\[[^]]*\] *", "", line) for line in log.splitlines())
    kept = (s for s in said if s.startswith(("ppfix", "sglang-ppfix")))
    return list(dict.fromkeys(line[:200] for line in kept))[:12]
