"""Machines that somebody reported, for models that are asked about again."""

from dataclasses import dataclass
from math import log
from typing import Protocol

from .hardware import Gpu
from .model_shape import ModelShape
from .presets import preset


class Machine(Protocol):
    """What a report is found by."""

    @property
    def model(self) -> ModelShape: ...

    @property
    def gpu(self) -> Gpu: ...

    @property
    def gpus(self) -> int: ...


@dataclass(frozen=True)
class Report:
    """Figures of a machine that somebody reported.

    Attributes:
        experts: of the model.
        layers: of the model.
        gpu: kind.
        gpus: how many.
        preset: whose readings hold for its pipeline.
        tp: clients -> tokens per second with tensor parallelism over all GPUs.
    """

    experts: int
    layers: int
    gpu: str
    gpus: int
    preset: str
    tp: dict[int, float]


REPORTS = (Report(384, 61, "rtx-pro-6000", 8, "the-case", {1: 26.3, 32: 577.8}),)


def report_for(machine: Machine) -> Report | None:
    """The report of this very model on this very machine, if there is one."""
    for report in REPORTS:
        if (
            machine.model.experts,
            machine.model.layers,
            machine.gpu.name,
            machine.gpus,
        ) == (
            report.experts,
            report.layers,
            report.gpu,
            report.gpus,
        ):
            return report
    return None


def reported_pipeline(machine: Machine) -> dict[int, float]:
    """Clients -> tokens per second that stock was reported to give; may be empty."""
    report = report_for(machine)
    return {} if report is None else preset(report.preset).reported


def between(points: dict[int, float], clients: int) -> float:
    """On the straight line through two reported points, both axes logarithmic."""
    (x0, y0), (x1, y1) = sorted(points.items())
    power = (clients / x0) ** (log(y1 / y0) / log(x1 / x0))
    return float(y0 * power)
