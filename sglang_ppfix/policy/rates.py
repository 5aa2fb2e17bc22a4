"""Tokens per second over laps of all kinds, by target slots. Pure.

Laps of decodes say nothing of prompts: spread over the slots of a lap they pass the
stages side by side, in one slot one after the other.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from .speeds import Difference, is_even

#: Laps whose rate makes one value.
BLOCK_LAPS = 16
#: Values that are kept of each number of slots, the newest ones.
KEPT = 16
#: Values that a rate needs.
LEAST_BLOCKS = 8
#: Loads that differ by more than this part are not compared.
SAME_LOAD = 0.1
#: A handful of values may lie together by chance.
_LEAST_ERROR = 0.005


@dataclass
class _Block:
    """Some laps in a row, their requests in flight summed up."""

    laps: int = 0
    live: int = 0
    tokens: int = 0
    seconds: float = 0.0


class Rates:
    """What every number of target slots made of the time."""

    def __init__(self) -> None:
        self._blocks: dict[int, deque[_Block]] = {}
        self._running = _Block()
        self._slots = 0
        self._arrived = False

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
            self._slots, self._arrived, self._running = slots, False, _Block()
        self._arrived = self._arrived or (
            sum(held > 0 for held in occupancy) == min(slots, live)
            and is_even(occupancy)
        )
        if not self._arrived:
            return
        block = self._running
        block.laps += 1
        block.live += live
        block.tokens += tokens
        block.seconds += seconds
        if block.laps == BLOCK_LAPS:
            self._blocks.setdefault(slots, deque(maxlen=KEPT)).append(block)
            self._running = _Block()

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
        """(requests in flight, seconds) of a mean lap; there must be values."""
        blocks = self._blocks[slots]
        seconds = fmean(block.seconds for block in blocks) / BLOCK_LAPS
        return round(fmean(block.live for block in blocks) / BLOCK_LAPS), seconds

    def compare(
        self, slots: int, other: int, least_blocks: int = LEAST_BLOCKS
    ) -> Difference | None:
        """Time per token with ``slots`` against ``other``; None where one of them has
        fewer values than ``least_blocks``, or the load was another."""
        if min(self.blocks(slots), self.blocks(other)) < max(least_blocks, 2):
            return None
        live, _ = self.lap(slots)
        other_live, _ = self.lap(other)
        if abs(live - other_live) > SAME_LOAD * other_live:
            return None
        new, old = self._blocks[slots], self._blocks[other]
        ratio = math.log(_seconds_a_token(new) / _seconds_a_token(old))
        error = math.hypot(_error(new), _error(old), _LEAST_ERROR)
        return Difference(ratio, error, len(new))


def _seconds_a_token(blocks: Sequence[_Block]) -> float:
    seconds = fmean(block.seconds for block in blocks)
    return seconds / fmean(block.tokens for block in blocks)


def _error(blocks: Sequence[_Block]) -> float:
    """Standard error of the logarithm of their mean rate."""
    logs = [math.log(block.seconds / block.tokens) for block in blocks]
    return stdev(logs) / math.sqrt(len(logs))
