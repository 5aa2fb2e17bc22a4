"""Samples of this machine's NVIDIA GPUs through NVML (``nvidia-ml-py``)."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any
from urllib.parse import urlsplit


class NoGpuError(RuntimeError):
    """No GPU can be read here; the text is one line that says why."""


@dataclass
class GpuUse:
    """One GPU over a time.

    Attributes:
        index: NVML's index; ``name``: the product.
        busy: shares of the sample periods in which a kernel ran, 0 to 1. A kernel that
            waits for its peer (NCCL) counts as running.
        watts: power at each sample; ``limit_watts``: the board's limit, 0 unknown.
        used_gb, total_gb: memory at the last sample.
    """

    index: int
    name: str
    busy: list[float] = field(default_factory=list)
    watts: list[float] = field(default_factory=list)
    limit_watts: float = 0.0
    used_gb: float = 0.0
    total_gb: float = 0.0

    def words(self) -> str:
        """One line for the report."""
        if not self.busy:
            return f"GPU {self.index} ({self.name}): no sample"
        watts = f", {fmean(self.watts):.0f} W" if self.watts else ""
        limit = f" of {self.limit_watts:.0f}" if self.limit_watts and watts else ""
        return (
            f"GPU {self.index} ({self.name}): busy {fmean(self.busy):.0%} "
            f"({min(self.busy):.0%} to {max(self.busy):.0%}){watts}{limit}, memory "
            f"{self.used_gb:.0f} of {self.total_gb:.0f} GB"
        )


def is_here(url: str) -> bool:
    """Whether a server runs on this machine, whose GPUs then are its own."""
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1", "0.0.0.0")


def sample_gpus(
    seconds: float,
    interval_s: float = 0.25,
    sleep: Callable[[float], None] = time.sleep,
) -> list[GpuUse]:
    """Sample all GPUs for a time; returns when it is over.

    Args:
        seconds: how long.
        interval_s: time between two samples.
        sleep: how to wait.

    Raises:
        NoGpuError: no driver, no GPU, or ``nvidia-ml-py`` is missing.
    """
    nvml = _open()
    try:
        handles = [
            nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())
        ]
        if not handles:
            raise NoGpuError("no GPU: NVML finds none on this machine")
        uses = [_describe(nvml, i, handle) for i, handle in enumerate(handles)]
        end = time.monotonic() + seconds
        while True:
            for use, handle in zip(uses, handles, strict=True):
                _sample(nvml, use, handle)
            if time.monotonic() >= end:
                return uses
            sleep(interval_s)
    except nvml.NVMLError as error:
        raise NoGpuError(f"no GPU samples: NVML says {error}") from error
    finally:
        nvml.nvmlShutdown()


def _open() -> Any:
    try:
        import pynvml
    except ImportError as error:
        raise NoGpuError("no GPU samples: nvidia-ml-py is not installed") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NoGpuError(f"no GPU here: NVML says {error}") from error
    return pynvml


def _describe(nvml: Any, index: int, handle: Any) -> GpuUse:
    name = nvml.nvmlDeviceGetName(handle)
    use = GpuUse(index, name.decode() if isinstance(name, bytes) else str(name))
    try:
        use.limit_watts = nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000.0
    except nvml.NVMLError:
        use.limit_watts = 0.0  # not every board has one
    return use


def _sample(nvml: Any, use: GpuUse, handle: Any) -> None:
    use.busy.append(nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100.0)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    use.used_gb, use.total_gb = memory.used / 1e9, memory.total / 1e9
    try:
        use.watts.append(nvml.nvmlDeviceGetPowerUsage(handle) / 1000.0)
    except nvml.NVMLError:
        return  # the board does not measure power
