"""Tokens per second over laps of all kinds, by target slots. Pure.

Laps of decodes say nothing of prompts: spread over the slots of a lap they pass the
stages side by side, in one slot one after the other.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from .speeds import SAME_LOAD, Difference, is_even

#: Laps whose rate makes one value.
BLOCK_LAPS = 16
#: Values that are kept of each number of slots, the newest ones.
KEPT = 32
#: Values that a rate needs, and with which it is known as well as it will be.
LEAST_BLOCKS, ENOUGH_BLOCKS = 8, 16
#: Laps after requests were spread that do not count: a new size may be slow once.
_FIRST_LAPS = 4
#: A handful of values may lie together by chance.
_LEAST_ERROR = 0.005


@dataclass
class _Block:
    """Some laps in a row, their requests in flight summed up."""

    laps: int = 0
    live: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def log_seconds(self) -> float:
        """Logarithm of the seconds a token."""
        return math.log(self.seconds / self.tokens)


class Rates:
    """What every number of target slots made of the time."""

    def __init__(self) -> None:
        self._blocks: dict[int, deque[_Block]] = {}
        self._running = _Block()
        self._slots = 0
        self._arrived = 0

    def add(
        self, slots: int, occupancy: Sequence[int], tokens: int, seconds: float
    ) -> None:
        """Count a lap.

        Args:
            slots: target slots in force. Laps count from the first in which requests
                are spread over them: they stay in the slot in which they began.
            occupancy: requests per slot.
            tokens: made in it; a slot that takes in prompts decodes nothing.
            seconds: its wall time.
        """
        live = sum(occupancy)
        if slots != self._slots:
            self._slots = slots
            self.pause()
        if self._arrived or (
            sum(held > 0 for held in occupancy) == min(slots, live)
            and is_even(occupancy)
        ):
            self._arrived += 1
        if self._arrived <= _FIRST_LAPS:
            return
        block = self._running
        block.laps += 1
        block.live += live
        block.tokens += tokens
        block.seconds += seconds
        if block.laps == BLOCK_LAPS:
            self._blocks.setdefault(slots, deque(maxlen=KEPT)).append(block)
            self._running = _Block()

    def pause(self) -> None:
        """Laps were missed: what comes does not belong to what was."""
        self._running = _Block()
        self._arrived = 0

    def forget(self, slots: int | None = None) -> None:
        """Forget the laps of a number of slots, or all."""
        self._running = _Block()
        if slots is None:
            self._blocks.clear()
        else:
            self._blocks.pop(slots, None)

    def blocks(self, slots: int) -> int:
        """Values behind the rate with ``slots``, at most ``KEPT``."""
        return len(self._blocks.get(slots, ()))

    def lap(self, slots: int) -> tuple[int, float]:
        """(requests in flight, seconds) of a mean lap lately; there must be values."""
        blocks = list(self._blocks[slots])[-LEAST_BLOCKS:]
        seconds = fmean(block.seconds for block in blocks) / BLOCK_LAPS
        return round(fmean(block.live for block in blocks) / BLOCK_LAPS), seconds

    def compare(
        self, slots: int, other: int, least_blocks: int = LEAST_BLOCKS
    ) -> Difference | None:
        """Time per token with ``slots`` against ``other``, at like loads; None where
        there are fewer such values than ``least_blocks``."""
        new, old = self._blocks.get(slots, ()), self._blocks.get(other, ())
        differences, mates = [], {}
        for block in new:
            like = {
                number: each.log_seconds()
                for number, each in enumerate(old)
                if abs(each.live - block.live) <= SAME_LOAD * block.live
            }
            if like:
                differences.append(block.log_seconds() - fmean(like.values()))
                mates.update(like)
        if len(differences) < max(least_blocks, 2) or len(mates) < 2:
            return None
        error = math.hypot(
            _error(differences), _error(list(mates.values())), _LEAST_ERROR
        )
        return Difference(fmean(differences), error, len(differences))


def _error(values: Sequence[float]) -> float:
    return stdev(values) / math.sqrt(len(values))
