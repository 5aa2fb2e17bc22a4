"""Windows of a log as operating points: one per load level that lasted."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .diagnosis_types import Measured, Moment, OperatingPoint
from .log_inflight import InFlight, Source, in_flight
from .log_load import (
    burst_slots,
    fill_slots,
    logged_sizes,
    measured,
    plugin_slots,
    quantile,
    whole_seconds,
)
from .log_pipeline import PipelineLog
from .log_windows import Window

#: Decode lines that make a level.
_LEAST_LINES = 3
#: Levels reported at most; the rest is ramps.
_MOST_LEVELS = 8
#: Stamps of whole seconds: windows shorter than this are merged.
_LONG_ENOUGH_S = 4.0
#: Windows within this ratio of a level's in-flight count belong to it.
_WIDTH = 0.15


@dataclass(frozen=True)
class LoadHints:
    """What the user told about the load."""

    clients: int | None = None
    max_running_requests: int | None = None
    interval: int = 40
    cap: int | None = None
    loop_size: int | None = None

    @property
    def places(self) -> int | None:
        """Requests that rows and cap have room for."""
        if self.max_running_requests is None:
            return None
        if self.cap is None or self.loop_size is None:
            return self.max_running_requests
        return min(self.max_running_requests, self.cap * self.loop_size)


def operating_points(
    pipeline: PipelineLog, hints: LoadHints, answers_count: bool
) -> list[OperatingPoint]:
    """Load levels of a pipeline, the longest first; short ones still anchor a model."""
    windows = _coalesced(pipeline.series.windows())
    kept = _without_stragglers(windows)
    prompts = pipeline.prompt_tokens / max(pipeline.requests, 1)
    numbers = _trusted(kept, in_flight(kept, prompts, answers_count), hints)
    total = sum(w.busy_s for w in windows)
    known = sum(w.busy_s for w, n in zip(kept, numbers, strict=True) if n is not None)
    if total <= 0:
        return []
    if known < 0.5 * total:
        return _one_level(kept, hints, total, prompts, pipeline)
    points: list[OperatingPoint] = []
    rest = [(w, n) for w, n in zip(kept, numbers, strict=True) if n is not None]
    steady = _steady(kept, numbers)
    while rest and len(points) < _MOST_LEVELS:
        level = _heaviest(rest)
        inside = [(w, n) for w, n in rest if _near(n.number, level)]
        rest = [(w, n) for w, n in rest if not _near(n.number, level)]
        if points:
            # Beside the longest, only what stayed is a level: ramps pass through.
            inside = [(w, n) for w, n in inside if id(w) in steady]
        group = [w for w, _ in inside]
        if sum(w.lines for w in group) < _LEAST_LINES:
            continue
        counts = [n for _, n in inside]
        points.append(_point(group, counts, hints, total, pipeline.late_prefills))
    return points


def _trusted(
    windows: Sequence[Window], numbers: list[InFlight | None], hints: LoadHints
) -> list[InFlight | None]:
    """Where the number of clients is given, it is better than the KV balance."""
    if hints.clients is None:
        return numbers
    trusted = []
    for window, number in zip(windows, numbers, strict=True):
        if number is not None and number.source is Source.BALANCE:
            waiting = window.queue / window.lines
            given = max(hints.clients - waiting, 1.0)
            if number.number >= 0.5 * given:
                number = InFlight(min(given, hints.places or given), Source.CLIENTS)
        trusted.append(number)
    return trusted


def timeline(
    pipeline: PipelineLog, hints: LoadHints, answers_count: bool
) -> list[Moment]:
    """The log over time, for a picture."""
    windows = _coalesced(pipeline.series.windows())
    prompts = pipeline.prompt_tokens / max(pipeline.requests, 1)
    numbers = in_flight(windows, prompts, answers_count)
    return [
        Moment(
            second=w.second,
            seconds=w.busy_s,
            in_flight=n.number if n is not None else None,
            mean_micro_batch=w.tokens / (hints.interval * w.accepted),
            logged=sum(size * times for size, times in w.logged.items()) / w.lines,
            tok_s=w.tokens / w.busy_s,
            queue=w.queue / w.lines,
            usage=w.usage,
        )
        for w, n in zip(windows, numbers, strict=True)
        if w.lines and w.busy_s > 0
    ]


def _coalesced(windows: list[Window]) -> list[Window]:
    """Windows long enough that stamps of whole seconds do not matter.

    Counts and slots that only hold at one moment keep neighbours apart.
    """
    if not windows or not whole_seconds(windows):
        return [w for w in windows if w.seconds > 0]
    merged: list[Window] = []
    for window in windows:
        before = merged[-1] if merged else None
        if (
            before is not None
            and before.seconds < _LONG_ENOUGH_S
            and window.idle_s == 0
            and (before.seats, before.slots, before.episode)
            == (window.seats, window.slots, window.episode)
        ):
            before.absorb(window)
            before.parts.append(window)
        else:
            copy = replace(window, logged=dict(window.logged), parts=[window])
            merged.append(copy)
    return [w for w in merged if w.seconds > 0]


def _without_stragglers(windows: list[Window]) -> list[Window]:
    """Windows between idle times hold the end of one load and the start of another."""
    return [w for w in windows if w.idle_s < 0.2 * w.seconds] or windows


def _steady(windows: Sequence[Window], numbers: Sequence[InFlight | None]) -> set[int]:
    """Windows that begin and end with the same number in flight."""
    found = set()
    before: InFlight | None = None
    for window, number in zip(windows, numbers, strict=True):
        if before is not None and number is not None:
            change = abs(number.number - before.number)
            same = change <= max(0.03 * number.number, 0.1)
            if same and not window.idle_s:
                found.add(id(window))
        before = number
    return found


def _near(number: float, level: float) -> bool:
    return abs(number - level) <= max(_WIDTH * level, 0.5)


def _heaviest(pairs: Sequence[tuple[Window, InFlight]]) -> float:
    """In-flight count around which most busy time lies."""
    mass: dict[int, float] = {}
    for window, number in pairs:
        whole = round(number.number)
        mass[whole] = mass.get(whole, 0.0) + window.busy_s
    return max(
        mass, key=lambda level: sum(t for n, t in mass.items() if _near(n, level))
    )


def _point(
    windows: list[Window],
    numbers: list[InFlight],
    hints: LoadHints,
    total: float,
    late_prefills: bool,
) -> OperatingPoint:
    point = measured(windows, hints.interval, total)
    weights = [w.busy_s for w in windows]
    counts = [n.number for n in numbers]
    mean = sum(n * t for n, t in zip(counts, weights, strict=True)) / sum(weights)
    tenths = quantile(counts, 0.1), quantile(counts, 0.9)
    point.in_flight = Measured(mean, min(tenths[0], mean), max(tenths[1], mean))
    source = max(
        {n.source for n in numbers}, key=lambda s: _weight(s, windows, numbers)
    )
    point.source, point.confidence = source.value, source.confidence
    if late_prefills and source in (Source.ANSWERS, Source.BALANCE):
        _add_prefilling(point, windows)
    plugin_slots(point, windows)
    if point.occupancy is None:
        burst_slots(point, windows)
    fill_slots(point, logged_sizes(windows), hints.loop_size)
    return point


def _add_prefilling(point: OperatingPoint, windows: Sequence[Window]) -> None:
    """Requests in prefill are in flight, but printed when it is done, a lap later.

    So many are missing: admissions per second times the lap.
    """
    number = point.in_flight
    seconds = sum(w.busy_s for w in windows)
    if number is None or not point.tok_s or not seconds:
        return
    rate = sum(w.prefill_seqs for w in windows) / seconds
    missing = rate * number.value * point.accepted / point.tok_s
    point.in_flight = Measured(
        number.value + missing, number.low + missing, number.high + missing
    )


def _weight(source: Source, windows: list[Window], numbers: list[InFlight]) -> float:
    return sum(
        w.busy_s for w, n in zip(windows, numbers, strict=True) if n.source is source
    )


def _one_level(
    windows: list[Window],
    hints: LoadHints,
    total: float,
    prompts: float,
    pipeline: PipelineLog,
) -> list[OperatingPoint]:
    """The loaded part of a log that does not tell how many are in flight."""
    rate = quantile([w.tokens / w.busy_s for w in windows], 0.9)
    loaded = [w for w in windows if w.tokens / w.busy_s >= 0.3 * rate]
    sizes = quantile([float(max(w.logged)) for w in loaded], 0.9)
    loaded = [w for w in loaded if max(w.logged) >= 0.5 * sizes] or loaded
    if sum(w.lines for w in loaded) < _LEAST_LINES:
        return []
    point = measured(loaded, hints.interval, total)
    plugin_slots(point, loaded)
    mean = point.mean_micro_batch
    if hints.clients is not None:
        number = max(hints.clients - (point.queue or 0.0), 1.0)
        if hints.places is not None:
            number = min(number, hints.places)
        _set(point, number, number, number, Source.CLIENTS)
    elif (
        (point.queued_share or 0.0) > 0.9
        and hints.places is not None
        and (point.usage or 0.0) < 0.85
    ):
        _set(point, hints.places, hints.places, hints.places, Source.QUEUE)
    elif mean is not None:
        _from_tokens(point, loaded, prompts, pipeline)
    fill_slots(point, logged_sizes(loaded), hints.loop_size)
    return [point]


def _set(
    point: OperatingPoint, value: float, low: float, high: float, source: Source
) -> None:
    point.in_flight = Measured(value, low, high)
    point.source, point.confidence = source.value, source.confidence


def _from_tokens(
    point: OperatingPoint,
    windows: list[Window],
    prompts: float,
    pipeline: PipelineLog,
) -> None:
    """KV tokens held over the mean length of a running request, a wide range."""
    requests = pipeline.requests
    held = statistics.fmean(w.kv for w in windows)
    cached = pipeline.cached_tokens > 0.05 * max(pipeline.prompt_tokens, 1)
    if requests < 20 or held <= 0 or cached:
        return
    output = pipeline.generated / requests
    # Halfway through on average when all answers are equally long, all the way when
    # lengths vary as in an exponential distribution.
    low, high = held / (prompts + output), held / (prompts + output / 2)
    if high <= 1.5 * low:
        _set(point, (low + high) / 2, low, high, Source.TOKENS)
