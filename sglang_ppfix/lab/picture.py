"""Stages over time, a box per micro-batch: one look, and you see the holes close."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import LabError
from .experiment import Outcome, Run
from .trace import Forward

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe-Ito, safe for the colour-blind; slots beyond it start again.
_COLOURS = (
    "#56B4E9",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#F0E442",
    "#0072B2",
    "#D55E00",
    "#999999",
)
_BAR_HEIGHT = 0.78
_LAPS_SHOWN = 2.6
_SMALLEST_LABEL = 0.022
"""Boxes narrower than this part of the axis carry no number."""


def require_matplotlib() -> None:
    """Say early that a picture cannot be drawn.

    Raises:
        LabError: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise LabError("a picture needs matplotlib: pip install 'sglang-ppfix[plot]'")


def draw(outcome: Outcome, path: Path, clients: int | None = None) -> int:
    """Draw a steady part of one row's runs, one panel an arm.

    Args:
        outcome: what was run.
        path: picture to write (PNG, or what its suffix says).
        clients: which row; default the middle one.

    Returns:
        The row drawn.

    Raises:
        LabError: matplotlib is missing, or nothing was traced.
    """
    require_matplotlib()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = outcome.experiment.clients
    clients = clients or rows[len(rows) // 2]
    runs = [
        runs[len(runs) // 2]
        for arm in outcome.experiment.arms
        if (runs := sorted(outcome.of(arm, clients), key=lambda r: r.measurement.tok_s))
    ]
    if not runs or not all(trace for run in runs for trace in run.traces):
        raise LabError(f"nothing was traced with {clients} clients")
    width = max(_LAPS_SHOWN * lap_seconds(run.traces[0]) for run in runs)
    stages = outcome.experiment.server.pp_size
    figure, panels = pyplot.subplots(
        len(runs),
        1,
        sharex=True,
        squeeze=False,
        figsize=(12, 1.3 + len(runs) * (0.9 + 0.42 * stages)),
        layout="constrained",
    )
    for panel, run in zip(panels[:, 0], runs, strict=True):
        _panel(panel, run, width, outcome.experiment.server.slots)
    panels[-1, 0].set_xlabel("time in ms (the same axis for both)")
    figure.suptitle(_title(outcome, clients, runs), fontsize=13)
    _legend(figure, outcome.experiment.server.slots)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
    return clients


def lap_seconds(forwards: Sequence[Forward]) -> float:
    """Median time between two decode starts of the same slot."""
    gaps: list[float] = []
    latest: dict[int, float] = {}
    for forward in forwards:
        if forward.mode == "decode":
            if forward.slot in latest:
                gaps.append(forward.start - latest[forward.slot])
            latest[forward.slot] = forward.start
    return sorted(gaps)[len(gaps) // 2] if gaps else 1.0


def _panel(panel: "Axes", run: Run, width: float, slots: int) -> None:
    begin = _steady_begin(run.traces[0], width)
    for stage, trace in enumerate(run.traces):
        panel.broken_barh([(0, width * 1e3)], (stage - 0.5, 1), color="#f4f4f4")
        for forward in trace:
            if forward.end < begin or forward.start > begin + width:
                continue
            left = max(forward.start - begin, 0.0) * 1e3
            right = min(forward.end - begin, width) * 1e3
            panel.broken_barh(
                [(left, right - left)],
                (stage - _BAR_HEIGHT / 2, _BAR_HEIGHT),
                color=_COLOURS[forward.slot % len(_COLOURS)],
                edgecolor="white",
                linewidth=1.0,
                hatch=None if forward.mode == "decode" else "///",
            )
            if right - left > _SMALLEST_LABEL * width * 1e3:
                panel.text(
                    (left + right) / 2,
                    stage,
                    str(forward.requests),
                    ha="center",
                    va="center",
                    fontsize=10,
                )
    panel.set_xlim(0, width * 1e3)
    panel.set_ylim(len(run.traces) - 0.5, -0.5)
    panel.set_yticks(range(len(run.traces)))
    panel.set_yticklabels([f"stage {stage}" for stage in range(len(run.traces))])
    panel.tick_params(length=0)
    for side in ("top", "right", "left", "bottom"):
        panel.spines[side].set_visible(False)
    m = run.measurement
    panel.set_title(
        f"{run.arm}: {m.slots_filled:.0f} of {slots} slots filled, largest micro-batch "
        f"{m.largest_micro_batch}, stages idle {m.bubble_share:.0%} of the time, "
        f"{m.tok_s:.1f} tok/s",
        loc="left",
        fontsize=11,
    )


def _steady_begin(forwards: Sequence[Forward], width: float) -> float:
    """Start of a decode near the middle of the run."""
    starts = [f.start for f in forwards if f.mode == "decode"] or [forwards[0].start]
    middle = (starts[0] + starts[-1] - width) / 2
    return next((start for start in starts if start >= middle), starts[0])


def _title(outcome: Outcome, clients: int, runs: Sequence[Run]) -> str:
    server = outcome.experiment.server
    rates = " against ".join(f"{r.measurement.tok_s:.1f} ({r.arm})" for r in runs)
    return (
        f"{clients} clients on {server.pp_size} pipeline stages: {rates} tokens/s\n"
        f"real SGLang schedulers, emulated devices: {server.profile.name}"
    )


def _legend(figure: Any, slots: int) -> None:
    from matplotlib.patches import Patch

    shown = min(slots, len(_COLOURS))
    handles = [
        Patch(color=_COLOURS[slot], label=f"slot {slot}") for slot in range(shown)
    ]
    handles.append(Patch(facecolor="#f4f4f4", edgecolor="#cccccc", label="idle"))
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=len(handles),
        frameon=False,
        title="number in a box: requests of the micro-batch",
    )
