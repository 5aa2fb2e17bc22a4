"""GPU samples: what is shown with GPUs, and one clear line without."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from sglang_ppfix.observe.gpu import GpuUse, NoGpuError, sample_gpus


class NvmlError(Exception):
    """Stands for NVML's error."""


def fake_nvml(devices: int, power: bool = True) -> SimpleNamespace:
    """NVML's functions for some boards, whose load changes with every sample."""
    load = iter(range(40, 10_000, 10))

    def watts(handle: int) -> int:
        if not power:
            raise NvmlError("Not Supported")
        return 300_000 + handle

    def utilisation(handle: int) -> Any:
        return SimpleNamespace(gpu=min(next(load), 100))

    return SimpleNamespace(
        NVMLError=NvmlError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: devices,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda handle: b"RTX PRO 6000",
        nvmlDeviceGetEnforcedPowerLimit=lambda handle: 600_000,
        nvmlDeviceGetUtilizationRates=utilisation,
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=85e9, total=96e9),
        nvmlDeviceGetPowerUsage=watts,
    )


def test_samples_become_one_line_a_board(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails if the swing of a board's load, or its power, is not shown."""
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(2))
    first, second = sample_gpus(0.03, 0.01)
    assert len(first.busy) >= 2
    assert first.busy[0] == 0.4
    assert second.name == "RTX PRO 6000"
    line = first.words()
    assert "(40% to" in line
    assert "300 W of 600" in line
    assert "85 of 96 GB" in line


def test_a_board_without_a_power_meter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails if one missing reading loses the others."""
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(1, power=False))
    (use,) = sample_gpus(0.0)
    assert use.watts == []
    assert " W" not in use.words()


@pytest.mark.parametrize(
    ("nvml", "words"),
    [
        (None, "nvidia-ml-py is not installed"),
        (fake_nvml(0), "NVML finds none"),
    ],
)
def test_no_gpu_is_one_clear_line(
    nvml: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails if a machine without GPUs ends in a traceback."""
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with pytest.raises(NoGpuError, match=words) as caught:
        sample_gpus(0.0)
    assert "\n" not in str(caught.value)


def test_this_machine_answers_either_way() -> None:
    """Fails if the real NVML raises anything but the one error."""
    try:
        found = sample_gpus(0.0)
    except NoGpuError as error:
        assert str(error).startswith("no GPU")  # noqa: PT017 - either may hold
    else:
        assert all(isinstance(use, GpuUse) for use in found)
