"""A log as a picture: requests, throughput, queue and KV cache over time."""

from typing import TYPE_CHECKING, Any

from .diagnosis_types import DiagnoseError, Moment, Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INCHES = (9.0, 7.0)


def draw(report: Report, path: str) -> None:
    """Draw a report's log into ``path``; its ending names the format.

    Args:
        report: of a log.
        path: png, svg, pdf and whatever else matplotlib writes.

    Raises:
        DiagnoseError: no matplotlib, nothing to draw, or the file cannot be written.
    """
    if not report.timeline:
        raise DiagnoseError(f"--plot {path}: there is no log with decode lines to draw")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise DiagnoseError(
            f"--plot {path}: needs matplotlib: pip install 'sglang-ppfix[plot]'"
        ) from None
    figure = Figure(figsize=_INCHES, layout="constrained")
    requests, rate, queue = figure.subplots(3, 1, sharex=True)
    start = report.timeline[0].second
    minutes = [(moment.second - start) / 60.0 for moment in report.timeline]
    _requests(requests, minutes, report)
    _steps(
        rate, minutes, [m.tok_s for m in report.timeline], "decode tokens per second"
    )
    rate.set_ylabel("tok/s")
    _queue(queue, minutes, report.timeline)
    figure.suptitle(f"{report.verdict.value}: {report.summary}", fontsize=9, wrap=True)
    try:
        figure.savefig(path, dpi=130)
    except (OSError, ValueError) as error:
        raise DiagnoseError(f"--plot {path}: {error}") from error


def _requests(axes: "Axes", minutes: list[float], report: Report) -> None:
    moments = report.timeline
    flight = [m.in_flight if m.in_flight is not None else float("nan") for m in moments]
    if any(value == value for value in flight):
        _steps(axes, minutes, flight, "in flight, all slots")
    elif report.main is not None and report.main.in_flight is not None:
        number = report.main.in_flight.value
        axes.axhline(number, linestyle=":", label=f"in flight: {report.main.source}")
    _steps(axes, minutes, [m.mean_micro_batch for m in moments], "mean micro-batch")
    axes.plot(
        minutes,
        [m.logged for m in moments],
        ".",
        markersize=3,
        label="#running-req printed (one slot)",
    )
    axes.set_ylabel("requests")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8, loc="upper right")


def _queue(axes: "Axes", minutes: list[float], moments: list[Moment]) -> None:
    _steps(axes, minutes, [m.queue for m in moments], "#queue-req")
    axes.set_ylabel("waiting requests")
    axes.set_xlabel("minutes")
    axes.set_ylim(bottom=0)
    usage: Any = axes.twinx()
    usage.step(
        minutes, [100 * m.usage for m in moments], where="pre", color="tab:gray", lw=0.8
    )
    usage.set_ylim(0, 100)
    usage.set_ylabel("KV cache used, %")


def _steps(axes: "Axes", minutes: list[float], values: list[float], label: str) -> None:
    axes.step(minutes, values, where="pre", label=label, linewidth=1.2)
