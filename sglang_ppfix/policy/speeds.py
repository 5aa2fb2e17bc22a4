"""How long laps took, by what the slots held. Pure."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import NamedTuple

#: Laps whose mean makes one value: neighbours have their noise in common.
BLOCK = 8
#: Values that are kept of each key, the newest ones.
KEPT = 24
#: Laps after which a value is too old to be held against a new one: machines drift.
RECENT = 2000
#: Loads that differ by less than this factor are compared.
SIMILAR = 1.5
#: Standard error of the median of normal values, times the root of their number, in
#: median absolute deviations.
_ERROR_OF_MEDIAN = 1.2533 * 1.4826
#: A handful of values may lie together by chance.
_LEAST_ERROR = 0.002


class Difference(NamedTuple):
    """One number of slots against another, at the same number of requests.

    Attributes:
        log_ratio: logarithm of their laps' ratio; below 0 where the first is faster.
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

    def blocks(self, lap: int, age: int = RECENT) -> list[float]:
        """Values that are not too old at ``lap``."""
        return [value for at, value in self.values if lap - at < age]


class Speeds:
    """Lap times by requests in flight and slots that hold them."""

    def __init__(self) -> None:
        self._times: dict[tuple[int, int], _Times] = {}
        self._lap = 0

    def add(self, occupancy: Sequence[int], seconds: float) -> None:
        """Count a lap of decodes.

        Args:
            occupancy: requests per slot. A lap that is far from even says nothing
                about the number of slots, and is not counted.
            seconds: its wall time.
        """
        self._lap += 1
        live, filled = sum(occupancy), sum(held > 0 for held in occupancy)
        if not live or not is_even(occupancy):
            return
        times = self._times.setdefault((live, filled), _Times())
        times.running.append(math.log(seconds))
        if len(times.running) == BLOCK:
            times.values.append((self._lap, fmean(times.running)))
            times.running.clear()

    def lap(self, demand: int, filled: int, least_blocks: int) -> tuple[int, float]:
        """(requests in flight, seconds of a lap) that is known best near ``demand``;
        ``(0, 0.0)`` while none has ``least_blocks`` blocks."""
        found = {
            live: times.blocks(self._lap)
            for (live, slots), times in self._times.items()
            if slots == filled and _similar(live, demand)
        }
        live = max(found, key=lambda key: len(found[key]), default=0)
        if not live or len(found[live]) < least_blocks:
            return 0, 0.0
        return live, math.exp(median(found[live]))

    @property
    def count(self) -> int:
        """Laps of decodes so far."""
        return self._lap

    def laps(self, demand: int, least_blocks: int) -> dict[int, tuple[int, float]]:
        """What :meth:`lap` knows near ``demand``, by filled slots."""
        filled = {slots for live, slots in self._times if _similar(live, demand)}
        known = {slots: self.lap(demand, slots, least_blocks) for slots in filled}
        return {slots: lap for slots, lap in known.items() if lap[0]}

    def compare(
        self, demand: int, one: int, other: int, last: int
    ) -> Difference | None:
        """``one`` filled slots against ``other``, at a load near ``demand``; None
        while no number of requests was seen with both.

        Args:
            demand: requests in flight.
            one: filled slots; of them only laps among the ``last`` ones count.
            other: filled slots.
            last: laps of decodes.
        """
        known = []
        for (live, filled), times in self._times.items():
            base = self._times.get((live, other))
            if filled != one or not _similar(live, demand) or base is None:
                continue
            new = times.blocks(self._lap, min(last, RECENT))
            old = base.blocks(self._lap)
            if new and old:
                error = math.hypot(_error(new), _error(old))
                known.append(Difference(median(new) - median(old), error, len(new)))
        return max(known, key=lambda difference: difference.blocks, default=None)


def is_even(occupancy: Sequence[int]) -> bool:
    """Whether no slot holds more than one request over its part."""
    filled = max(sum(held > 0 for held in occupancy), 1)
    return max(occupancy) <= -(-sum(occupancy) // filled) + 1


def _similar(live: int, demand: int) -> bool:
    return 1 / SIMILAR < live / demand < SIMILAR


def _error(blocks: Sequence[float]) -> float:
    middle = median(blocks)
    deviation = median(abs(block - middle) for block in blocks)
    return max(_ERROR_OF_MEDIAN * deviation / math.sqrt(len(blocks)), _LEAST_ERROR)
