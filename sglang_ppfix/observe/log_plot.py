"""A log as a picture: requests, throughput, queue and KV cache over time."""

import math
from collections.abc import Callable
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
    _requests(requests, report)
    _line(rate, report.timeline, lambda m: m.tok_s, "decode")
    rate.set_ylabel("tok/s")
    rate.set_ylim(bottom=0)
    _queue(queue, report.timeline)
    figure.suptitle(f"{report.verdict.value}: {report.summary}", fontsize=9, wrap=True)
    try:
        figure.savefig(path, dpi=130)
    except (OSError, ValueError) as error:
        raise DiagnoseError(f"--plot {path}: {error}") from error


def _requests(axes: "Axes", report: Report) -> None:
    moments = report.timeline
    if any(m.in_flight is not None for m in moments):
        _line(axes, moments, lambda m: m.in_flight, "in flight, all slots")
    elif report.main is not None and report.main.in_flight is not None:
        number = report.main.in_flight.value
        axes.axhline(number, linestyle=":", label=f"in flight: {report.main.source}")
    _line(axes, moments, lambda m: m.mean_micro_batch, "mean micro-batch")
    start = moments[0].second - moments[0].seconds
    axes.plot(
        [(m.second - start) / 60.0 for m in moments],
        [m.logged for m in moments],
        ".",
        markersize=4,
        label="#running-req printed (one slot)",
    )
    axes.set_ylabel("requests")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)


def _queue(axes: "Axes", moments: list[Moment]) -> None:
    _line(axes, moments, lambda m: m.queue, "#queue-req")
    axes.set_ylabel("waiting requests")
    axes.set_xlabel("minutes")
    axes.set_ylim(0, max(1.0, 1.05 * max(m.queue for m in moments)))
    usage: Any = axes.twinx()
    _line(usage, moments, lambda m: 100 * m.usage, "KV", color="tab:gray")
    usage.set_ylim(0, 100)
    usage.set_ylabel("KV cache used, % (gray)")


def _line(
    axes: "Axes",
    moments: list[Moment],
    value: Callable[[Moment], float | None],
    label: str,
    color: str | None = None,
) -> None:
    """Steps with gaps where nothing ran."""
    start = moments[0].second - moments[0].seconds
    minutes: list[float] = []
    values: list[float] = []
    for moment in moments:
        begin = moment.second - moment.seconds
        if minutes and (begin - start) / 60.0 > minutes[-1] + 1.5 / 60.0:
            minutes.append(minutes[-1])
            values.append(math.nan)
        shown = value(moment)
        minutes += [(begin - start) / 60.0, (moment.second - start) / 60.0]
        values += [math.nan if shown is None else shown] * 2
    axes.plot(minutes, values, label=label, linewidth=1.2, color=color)
