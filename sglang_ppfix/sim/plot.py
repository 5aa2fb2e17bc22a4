"""Pictures of sweeps and runs. Needs matplotlib (the extra ``plot``)."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from .outcome import Outcome

# Colours that colour-blind readers tell apart (Okabe and Ito).
_COLOURS = (
    "#999999",
    "#0072B2",
    "#E69F00",
    "#56B4E9",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#000000",
)
_MARKS = "osD^vP*X"
_LAPS_SHOWN = 3.5


def curves(rows: Sequence[dict[str, Any]], path: Path, title: str) -> None:
    """Throughput and time per token over clients, one line per policy and setting.

    Args:
        rows: of a sweep.
        path: PNG to write.
        title: above the picture.

    Raises:
        ValueError: matplotlib is missing, or the rows have no clients.
    """
    figure, axes = _figure(1, 2, (11, 4.4))
    lines: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row.get("clients"):
            lines[_label(row, rows)].append(row)
    if not lines:
        raise ValueError("--plot: the load has no number of clients to plot over")
    for number, (label, points) in enumerate(lines.items()):
        points.sort(key=lambda row: row["clients"])
        style = {
            "color": _COLOURS[number % len(_COLOURS)],
            "marker": _MARKS[number % len(_MARKS)],
            "markersize": 5,
            # Lines that coincide stay visible: the earlier ones are wider.
            "linewidth": 1.4 + 0.8 * (len(lines) - 1 - number),
            "label": label,
        }
        clients = [row["clients"] for row in points]
        axes[0].plot(clients, [row["tok_s"] for row in points], **style)
        low, high = ([row[f"tok_s_{end}"] for row in points] for end in ("low", "high"))
        axes[0].fill_between(clients, low, high, color=style["color"], alpha=0.12, lw=0)
        axes[1].plot(clients, [row["tpot_ms"] for row in points], **style)
    reported = [row for row in rows if row.get("reported")]
    axes[0].plot(
        [row["clients"] for row in reported],
        [row["reported"] for row in reported],
        "k+",
        markersize=11,
        label="reported" if reported else None,
    )
    for axis, what in zip(axes, ("tokens per second", "ms per token"), strict=True):
        axis.set_xlabel("clients")
        axis.set_ylabel(what)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False, fontsize=9)
    figure.suptitle(f"{title} (simulated)", fontsize=11)
    _save(figure, path)


def gantt(runs: Sequence[Outcome], path: Path, title: str) -> None:
    """What every stage does over a few laps in the middle of each run.

    Args:
        runs: recorded ones, one panel each.
        path: PNG to write.
        title: above the picture.

    Raises:
        ValueError: matplotlib is missing.
    """
    figure, panels = _figure(len(runs), 1, (11, 1.2 + 2.1 * len(runs)))
    windows = [_window(run) for run in runs]
    # One time scale for all panels, or lap times could not be compared.
    width = max(end - begin for begin, end in windows)
    for panel, run, (begin, _) in zip(panels, runs, windows, strict=True):
        stages = 1 + max(span.stage for span in run.spans or ())
        slots = 1 + max(span.slot for span in run.spans or ())
        for span in run.spans or ():
            if span.end < begin or span.start > begin + width:
                continue
            left = max(span.start - begin, 0.0)
            right = min(span.end - begin, width)
            panel.barh(
                span.stage,
                (right - left) * 1e3,
                left=left * 1e3,
                height=0.86,
                color=_slot_colour(span.slot, slots),
                edgecolor="white",
                linewidth=0.5,
                hatch="///" if span.kind != "decode" else None,
            )
            if (right - left) > width / 60:
                panel.text(
                    (left + right) / 2 * 1e3,
                    span.stage,
                    str(span.size),
                    ha="center",
                    va="center",
                    fontsize=7,
                )
        panel.set_xlim(0, width * 1e3)
        panel.set_ylim(stages - 0.5, -0.5)
        panel.set_yticks(range(stages))
        panel.set_ylabel("stage")
        panel.set_title(
            f"{run.policy}: {run.tok_s:.0f} tok/s, {run.slots} slots filled, "
            f"bubble {100 * run.bubble:.0f} %",
            loc="left",
            fontsize=10,
        )
        panel.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("ms; colour: slot, number: requests, hatched: prefill")
    figure.suptitle(f"{title} (simulated)", fontsize=11)
    _save(figure, path)


def _label(row: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    """Policy, and the settings that differ between rows of one policy."""
    parts = [row["policy"]]
    for key in ("async_depth", "cap", "target_slots", "layers"):
        same = {str(other.get(key)) for other in rows if other["policy"] == parts[0]}
        if len(same) > 1:
            parts.append(f"{key.replace('_', ' ')} {row.get(key)}")
    return ", ".join(parts)


def _window(run: Outcome) -> tuple[float, float]:
    """A few laps that only decode, near the middle of the run if there are any."""
    spans = [span for span in run.spans or () if span.stage == 0]
    prefills = [span.start for span in spans if span.kind != "decode"]
    middle = spans[len(spans) // 2].start
    windows = []
    for slot in {span.slot for span in spans}:
        starts = [span.start for span in spans if span.slot == slot]
        for start, following in pairwise(starts):
            end = start + _LAPS_SHOWN * (following - start)
            disturbed = sum(start <= time < end for time in prefills)
            windows.append((disturbed, abs(start - middle), start, end))
    if not windows:
        return 0.0, spans[-1].end
    return min(windows)[2:]


def _slot_colour(slot: int, slots: int) -> Any:
    from matplotlib import colormaps

    return colormaps["tab20" if slots > 10 else "tab10"](slot % 20)


def _figure(rows: int, columns: int, size: tuple[float, float]) -> tuple[Any, Any]:
    try:
        import matplotlib
    except ImportError:
        raise ValueError(
            "pictures need matplotlib: pip install 'sglang-ppfix[plot]'"
        ) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        rows, columns, figsize=size, squeeze=False, layout="constrained"
    )
    return figure, axes.ravel()


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

    figure.savefig(path, dpi=130)
    pyplot.close(figure)
