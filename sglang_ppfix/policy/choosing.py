"""How many slots help: the smallest number at which the lap is as good as any. Pure.

Decided on PP rank 0 from measured times, and applied everywhere in one iteration; all
other rules of this package decide on every rank by itself.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

#: Two laps closer than this are equal: fewer slots cost less CPU time.
TOLERANCE = 0.02
#: Growth over the measured sizes that is taken for noise.
NOISE = 0.03
#: A micro-batch this many times larger than any measured one is not predicted.
REACH = 2.0
#: A lap this many times longer than the stages' work explains is the host's.
HOST_BOUND = 1.5


class StageTime(NamedTuple):
    """Decode time of one stage, ``base + slope * b``, in ms.

    Attributes:
        base, slope: of the line.
        host: time that a slot costs the host, where that is what bounds the lap, ms.
        largest: largest micro-batch measured.
    """

    base: float
    slope: float
    host: float
    largest: int

    def occupied(self, size: int) -> float:
        """How long a micro-batch keeps the stage from the next one, ms."""
        return max(self.base + self.slope * size, self.host)


class Choice(NamedTuple):
    """Target slots, and the lap in ms that is predicted for each number of them."""

    slots: int
    laps: dict[int, float]


def fit_stage_time(decode_ms: Mapping[int, float]) -> StageTime | None:
    """Line through measured decode times; None while the slope is unknown.

    Args:
        decode_ms: mean time by micro-batch size.
    """
    if len(decode_ms) < 2:
        return None
    sizes = list(decode_ms)
    mean_size = sum(sizes) / len(sizes)
    mean_ms = sum(decode_ms.values()) / len(sizes)
    spread = sum((size - mean_size) ** 2 for size in sizes)
    slope = (
        sum((size - mean_size) * (ms - mean_ms) for size, ms in decode_ms.items())
        / spread
    )
    largest, smallest = max(sizes), min(sizes)
    grown = slope * (largest - smallest)
    if grown < NOISE * mean_ms:
        slope = 0.0
    return StageTime(mean_ms - slope * mean_size, slope, 0.0, largest)


def host_bound(
    decode_ms: Sequence[Mapping[int, float]], size: int, slots: int, lap_ms: float
) -> list[StageTime] | None:
    """Stages of a ring whose lap is the host's work, slot by slot; None if it is not.

    The devices do not explain such a lap, so how their time grows matters little:
    what a slot costs is what the lap takes per slot.

    Args:
        decode_ms: per stage, mean decode time by micro-batch size.
        size: largest micro-batch of the measured laps.
        slots: slots that they filled.
        lap_ms: their mean time.
    """
    if any(size not in times for times in decode_ms) or slots < 2:
        return None
    times = [stage[size] for stage in decode_ms]
    explained = max(slots * max(times), sum(times))
    if lap_ms < HOST_BOUND * explained:
        return None
    return [StageTime(time, 0.0, lap_ms / slots, size) for time in times]


def predict_lap(
    stages: Sequence[StageTime], demand: int, slots: int, latency_ms: float
) -> float:
    """Lap time in ms with ``demand`` requests spread over ``slots`` slots.

    The law: the busiest stage works off every slot, and a micro-batch passes every
    stage before its slot's next turn.

    Args:
        stages: one per pipeline stage.
        demand: requests in flight.
        slots: slots that hold them.
        latency_ms: what a lap costs beside the stages' work.
    """
    filled = min(slots, demand)
    size = -(-demand // filled)
    occupied = [stage.occupied(size) for stage in stages]
    return max(filled * max(occupied), sum(occupied) + latency_ms)


def choose_slots(
    stages: Sequence[StageTime | None],
    demand: int,
    most: int,
    latency_ms: float = 0.0,
) -> Choice:
    """The smallest number of slots whose lap is within ``TOLERANCE`` of the best.

    Args:
        stages: fitted times; None where the slope is not known yet.
        demand: requests in flight that are to be served well.
        most: slots that may be filled at most.
        latency_ms: see ``predict_lap``.

    Returns:
        ``most`` slots while a stage's slope is unknown: spreading is what shows it.
    """
    known = [stage for stage in stages if stage is not None]
    if len(known) < len(stages) or not known or demand < 1:
        return Choice(most, {})
    reach = REACH * min(stage.largest for stage in known)
    laps = {
        slots: predict_lap(known, demand, slots, latency_ms)
        for slots in range(1, most + 1)
        if -(-demand // min(slots, demand)) <= reach
    }
    if not laps:
        return Choice(most, {})
    best = min(laps.values())
    return Choice(min(s for s in laps if laps[s] <= best * (1 + TOLERANCE)), laps)
