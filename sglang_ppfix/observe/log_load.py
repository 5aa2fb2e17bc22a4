"""What a load level measures: micro-batches, slots, throughput, prefill share."""

import itertools
import math
import statistics
from collections.abc import Sequence

from .diagnosis_types import Measured, OperatingPoint
from .log_windows import Window


def whole_seconds(windows: list[Window]) -> bool:
    """Whether stamps have no milliseconds (``SGLANG_LOG_MS`` adds them)."""
    return all(w.second == int(w.second) for w in windows[:50])


def measured(windows: list[Window], interval: int, total: float) -> OperatingPoint:
    """What the lines of a level say by themselves.

    Args:
        windows: the level's windows, oldest first; at least one.
        interval: micro-batches between two decode lines.
        total: busy seconds of the whole log.
    """
    lines = sum(w.lines for w in windows)
    tokens = sum(w.tokens for w in windows)
    seconds = sum(w.busy_s for w in windows)
    accepted = sum(w.accepted for w in windows)
    sizes = logged_sizes(windows)
    point = OperatingPoint(
        tok_s=tokens / seconds if seconds > 0 else None,
        queue=sum(w.queue for w in windows) / lines,
        queued_share=sum(w.queue_lines for w in windows) / lines,
        usage=max(w.usage for w in windows),
        graph_share=1.0 - sum(w.no_graph for w in windows) / lines,
        prefills_s=sum(w.prefills for w in windows) / seconds if seconds else None,
        seconds=seconds,
        lines=lines,
        share=seconds / total,
        accepted=accepted / lines,
    )
    point.logged = Measured(_weighted_quantile(sizes, 0.5), min(sizes), max(sizes))
    mean = tokens / (interval * accepted)
    # Stamps without milliseconds are off by up to a second at each end of a run.
    runs = 1 + sum(
        1
        for a, b in itertools.pairwise(windows)
        if b.second - b.seconds > a.second + 0.5
    )
    error = (0.4 if whole_seconds(windows) else 0.01) * math.sqrt(2 * runs) / seconds
    spread = mean * min(error, 1.0)
    point.mean_micro_batch = Measured(mean, mean - spread, mean + spread)
    point.stretch = prefill_stretch(windows)
    return point


def logged_sizes(windows: list[Window]) -> dict[int, int]:
    """``#running-req`` as printed: value -> lines."""
    sizes: dict[int, int] = {}
    for window in windows:
        for size, times in window.logged.items():
            sizes[size] = sizes.get(size, 0) + times
    return sizes


def plugin_slots(point: OperatingPoint, windows: list[Window]) -> None:
    """Slots out of the plugin's lines: the truth, as long as most windows have it."""
    seen = [(w.slots, w.busy_s) for w in windows if w.slots is not None]
    time = sum(t for _, t in seen)
    if time < 0.5 * sum(w.busy_s for w in windows):
        return
    filled = sum(t * sum(n > 0 for n in slots) for slots, t in seen) / time
    largest = sum(t * max(slots) for slots, t in seen) / time
    point.filled, point.largest = Measured.exact(filled), Measured.exact(largest)
    by_time: dict[tuple[int, ...], float] = {}
    for slots, spent in seen:
        by_time[slots] = by_time.get(slots, 0.0) + spent
    most = max(by_time, key=lambda slots: by_time[slots])
    if by_time[most] > 0.3 * time:
        point.occupancy = tuple(sorted((n for n in most if n), reverse=True))


def burst_slots(point: OperatingPoint, windows: list[Window]) -> None:
    """Slots out of the admissions of a burst, while nothing had finished."""
    seen: dict[tuple[int, ...], float] = {}
    for window in windows:
        if window.seats is not None:
            seen[window.seats] = seen.get(window.seats, 0.0) + window.busy_s
    if not seen or point.in_flight is None:
        return
    seats = max(seen, key=lambda key: seen[key])
    lasted = seen[seats] > 0.4 * point.seconds
    # One more than are in flight, and the slot of one that has ended is among them.
    same = abs(sum(seats) - point.in_flight.value) <= 0.5
    mean = point.mean_micro_batch
    even = mean is not None and abs(sum(seats) / len(seats) - mean.value) < 0.15 * (
        mean.value
    )
    if same and (lasted or (even and max(seats) - min(seats) <= 1)):
        point.occupancy = seats


def fill_slots(
    point: OperatingPoint, sizes: dict[int, int], loop_size: int | None = None
) -> None:
    """Derive filled slots and largest micro-batch from what is known.

    Args:
        point: its ``in_flight`` and ``mean_micro_batch`` are used.
        sizes: ``#running-req`` as logged, value -> lines.
        loop_size: slots of the ring, if known.
    """
    if point.occupancy is not None and point.filled is None:
        point.filled = Measured.exact(len(point.occupancy))
        point.largest = Measured.exact(max(point.occupancy))
    mean = point.mean_micro_batch
    if mean is None or mean.value <= 0:
        return
    if point.filled is None and point.in_flight is not None:
        number = point.in_flight
        most = float(loop_size) if loop_size is not None else math.inf
        point.filled = Measured(
            min(max(number.value / mean.value, 1.0), most),
            min(max(number.low / mean.high, 1.0), most),
            min(max(number.high / max(mean.low, 0.5), 1.0), most),
        )
    if point.largest is None:
        slots = point.filled.value if point.filled is not None else 1.0
        value = max(expected_largest(sizes, slots), math.ceil(mean.value - 0.3))
        if point.in_flight is not None and point.logged is not None and slots > 1.3:
            # A log that samples one slot for ever still tells what the others hold.
            others = (point.in_flight.value - point.logged.value) / (slots - 1.0)
            value = max(value, others)
        point.largest = Measured(value, max(mean.value, 1.0), max(value, *sizes))


def expected_largest(sizes: dict[int, int], slots: float) -> float:
    """Mean of the largest of ``slots`` micro-batches drawn from the logged sizes.

    A log prints every 40th micro-batch of all slots, so over time the printed sizes
    are a sample of all of them, unless nothing ever shifts the phase.
    """
    total = sum(sizes.values())
    below, before, mean = 0, 0.0, 0.0
    for size in sorted(sizes):
        below += sizes[size]
        chance = (below / total) ** max(slots, 1.0)
        mean += size * (chance - before)
        before = chance
    return mean


def prefill_stretch(windows: Sequence[Window]) -> float | None:
    """Share of the time that prefills add to the laps, by least squares.

    The time of a decode line grows by a fixed amount per prefilled token:
    ``gap = base + slope * tokens``. None with too few windows.
    """
    parts = [part for w in windows for part in (w.parts or [w])]
    # The gap out of the throughput is exact; the stamps may be whole seconds.
    rows = [
        (w.prefill_tokens / w.lines, w.inverse_tok_s / w.lines)
        for w in parts
        if w.lines and w.inverse_tok_s > 0
    ]
    if len(rows) < 8:
        return None
    some = [x for x, _ in rows if x > 0]
    if not some:
        return 0.0
    # One large burst would set the slope alone.
    most = 4.0 * statistics.median(some)
    xs = [x for x, _ in rows if x <= most]
    ys = [y for x, y in rows if x <= most]
    mean_x, mean_y = statistics.fmean(xs), statistics.fmean(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    if spread <= 0.01 * len(xs) * mean_x**2:
        return None
    slope = (
        sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
    )
    return min(max(slope * mean_x / mean_y, 0.0), 1.0)


def quantile(values: Sequence[float], share: float) -> float:
    """Value below which ``share`` of the values lie; 0 of nothing."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0


def _weighted_quantile(sizes: dict[int, int], share: float) -> float:
    total, seen = sum(sizes.values()), 0
    for size in sorted(sizes):
        seen += sizes[size]
        if seen >= share * total:
            return float(size)
    return float(max(sizes))
