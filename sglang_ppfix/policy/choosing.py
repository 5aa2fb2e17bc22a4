"""What the devices allow: the shortest lap that a number of slots can have. Pure.

Device time is a lower bound of a lap: the host only adds to it. A number of slots whose
bound lies above the lap that is measured now cannot win, and is not even tried.
"""

from collections.abc import Callable, Mapping, Sequence

#: A micro-batch this many times larger than any measured one is not foretold.
REACH = 2.0
#: Part of the measured growth that is assumed beyond the largest micro-batch: stage
#: time of experts flattens as all of them are touched.
GROWTH = 0.5
#: Growth over the measured sizes that is taken for noise.
NOISE = 0.03


def least_time(decode_ms: Mapping[int, float], size: int) -> float:
    """Shortest decode time of a micro-batch that the measured ones leave possible, ms.

    Time never falls with size, and never grows faster than in proportion to it.

    Args:
        decode_ms: mean time by micro-batch size, of one stage; not empty.
        size: of the micro-batch in question.
    """
    if size in decode_ms:
        return decode_ms[size]
    smaller = max((known for known in decode_ms if known < size), default=None)
    larger = min((known for known in decode_ms if known > size), default=None)
    if smaller is None:
        assert larger is not None
        return decode_ms[larger] * size / larger
    if larger is None:
        slope = GROWTH * growth(decode_ms)
        return decode_ms[smaller] + slope * (size - smaller)
    part = (size - smaller) / (larger - smaller)
    return decode_ms[smaller] + part * (decode_ms[larger] - decode_ms[smaller])


def growth(decode_ms: Mapping[int, float]) -> float:
    """Slope of the line through measured times, ms per request; 0 where it is noise."""
    sizes = list(decode_ms)
    mean_size = sum(sizes) / len(sizes)
    mean_ms = sum(decode_ms.values()) / len(sizes)
    spread = sum((size - mean_size) ** 2 for size in sizes)
    if not spread:
        return 0.0
    slope = (
        sum((size - mean_size) * (ms - mean_ms) for size, ms in decode_ms.items())
        / spread
    )
    grown = slope * (max(sizes) - min(sizes))
    return 0.0 if grown < NOISE * mean_ms else slope


def most_time(decode_ms: Mapping[int, float], size: int) -> float:
    """Longest decode time of a micro-batch that the measured ones leave possible, ms.

    Args:
        decode_ms: mean time by micro-batch size, of one stage; not empty.
        size: of the micro-batch in question.
    """
    return min(ms * max(size / known, 1.0) for known, ms in decode_ms.items())


def least_lap(stages: Sequence[Mapping[int, float]], live: int, filled: int) -> float:
    """Shortest lap of ``live`` requests spread over ``filled`` slots, ms.

    The law: the busiest stage works off every slot, and a micro-batch passes every
    stage before its slot's next turn.

    Args:
        stages: decode time by micro-batch size, ms, one per pipeline stage.
        live: requests in flight.
        filled: slots that hold them, at most ``live``.
    """
    return _lap(least_time, stages, live, filled)


def is_foretold(
    stages: Sequence[Mapping[int, float]], live: int, filled: int, lap_ms: float
) -> bool:
    """Whether a trial of ``filled`` slots is no leap in the dark.

    Either every stage ran micro-batches of nearly the size that it takes, or the
    devices cannot make it slower than the present lap of ``lap_ms``.
    """
    if not all(stages):
        return False
    size = -(-live // filled)
    if all(size <= REACH * max(stage) for stage in stages):
        return True
    return _lap(most_time, stages, live, filled) <= lap_ms


def _lap(
    time_of: Callable[[Mapping[int, float], int], float],
    stages: Sequence[Mapping[int, float]],
    live: int,
    filled: int,
) -> float:
    times = [time_of(stage, -(-live // filled)) for stage in stages]
    return max(filled * max(times), sum(times))
