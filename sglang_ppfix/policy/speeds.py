"""How long laps of decodes took, by what the slots held. Pure."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import NamedTuple

#: Laps whose mean makes one value: neighbours have their noise in common.
BLOCK = 4
#: Values that are kept of each key, the newest ones.
KEPT = 48
#: Laps after which a value is too old to be held against a new one: machines drift.
RECENT = 2000
#: Laps over which the laps of one value may be spread.
TOGETHER = 256
#: Loads that differ by less than this factor are much the same.
SIMILAR = 1.5
#: Loads that differ by no more than this part are one, where a lap is told.
SAME_LOAD = 0.1
#: Standard error of the median of normal values, times the root of their number, in
#: median absolute deviations.
_ERROR_OF_MEDIAN = 1.2533 * 1.4826
#: A handful of values may lie together by chance; fewer than four say nothing of it.
_LEAST_ERROR = 0.002
_USUAL_DEVIATION = 0.03


class Difference(NamedTuple):
    """One number of slots against another, at the same number of requests.

    Attributes:
        log_ratio: logarithm of their times' ratio; below 0 where the first is faster.
        error: standard error of it.
        blocks: values of the first behind it.
    """

    log_ratio: float
    error: float
    blocks: int


@dataclass
class _Times:
    values: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=KEPT))
    running: list[float] = field(default_factory=list)
    since: int = 0

    def blocks(self, lap: int, age: int = RECENT) -> list[float]:
        """Values that are not too old at ``lap``."""
        return [value for at, value in self.values if lap - at < age]


class Speeds:
    """Lap times by requests in flight and slots that hold them."""

    def __init__(self) -> None:
        #: Laps of decodes so far.
        self.count = 0
        self._times: dict[tuple[int, int], _Times] = {}

    def add(self, occupancy: Sequence[int], seconds: float) -> None:
        """Count a lap of decodes.

        Args:
            occupancy: requests per slot. A lap that is far from even says nothing
                about the number of slots, and is not counted.
            seconds: its wall time.
        """
        self.count += 1
        if self.count % RECENT == 0:
            self._forget_old()
        live, filled = sum(occupancy), sum(held > 0 for held in occupancy)
        if not live or not is_even(occupancy):
            return
        times = self._times.setdefault((live, filled), _Times())
        if not times.running or self.count - times.since > TOGETHER:
            times.running, times.since = [], self.count
        times.running.append(math.log(seconds))
        if len(times.running) == BLOCK:
            times.values.append((self.count, fmean(times.running)))
            times.running = []

    def laps(self, demand: int, least_blocks: int) -> dict[int, tuple[int, float]]:
        """(requests in flight, seconds) of a lap that is known best near ``demand``, by
        filled slots, where it has ``least_blocks`` values."""
        found: dict[int, dict[int, list[float]]] = {}
        for (live, filled), times in self._times.items():
            if _similar(live, demand):
                found.setdefault(filled, {})[live] = times.blocks(self.count)
        known = {}
        for filled, blocks in found.items():
            live = max(blocks, key=lambda key: len(blocks[key]))
            near = [
                value
                for other, values in blocks.items()
                if abs(other - live) <= SAME_LOAD * live
                for value in values
            ]
            if len(near) >= least_blocks:
                known[filled] = live, math.exp(median(near))
        return known

    def compare(
        self, demand: int, one: int, other: int, last: int
    ) -> Difference | None:
        """``one`` filled slots against ``other``, at the same numbers of requests near
        ``demand``; None while none was seen with both.

        Args:
            demand: requests in flight.
            one: filled slots; of them only laps among the ``last`` ones count.
            other: filled slots.
            last: laps of decodes.
        """
        sums = [0.0, 0.0]
        weights = count = 0
        for (live, filled), times in self._times.items():
            base = self._times.get((live, other))
            if filled != one or not _similar(live, demand) or base is None:
                continue
            new = times.blocks(self.count, min(last, RECENT))
            old = base.blocks(self.count)
            if not new or not old:
                continue
            weight = min(len(new), len(old))
            sums[0] += weight * (median(new) - median(old))
            sums[1] += (weight * math.hypot(_error(new), _error(old))) ** 2
            weights += weight
            count += len(new)
        if not weights:
            return None
        return Difference(sums[0] / weights, math.sqrt(sums[1]) / weights, count)

    def _forget_old(self) -> None:
        self._times = {
            key: times
            for key, times in self._times.items()
            if times.blocks(self.count)
            or (times.running and self.count - times.since <= TOGETHER)
        }


def is_even(occupancy: Sequence[int]) -> bool:
    """Whether no slot holds more than one request over its part."""
    filled = max(sum(held > 0 for held in occupancy), 1)
    return max(occupancy) <= -(-sum(occupancy) // filled) + 1


def _similar(live: int, demand: int) -> bool:
    return 1 / SIMILAR < live / demand < SIMILAR


def _error(blocks: Sequence[float]) -> float:
    if len(blocks) < 4:
        return _USUAL_DEVIATION / math.sqrt(len(blocks))
    middle = median(blocks)
    deviation = median(abs(block - middle) for block in blocks)
    return max(_ERROR_OF_MEDIAN * deviation / math.sqrt(len(blocks)), _LEAST_ERROR)
