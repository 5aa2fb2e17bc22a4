"""Tokens per second over laps of all kinds, by target slots. Pure.

Laps of decodes say nothing of prompts: spread over the slots of a lap they pass the
stages side by side, in one slot one after the other.
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

#: Laps that are kept of each number of slots, the newest ones.
KEPT_LAPS = 256
#: Laps that a rate needs.
LEAST_LAPS = 128
#: Loads that differ by more than this part are not compared.
SAME_LOAD = 0.1


class _Lap(NamedTuple):
    live: int
    seconds: float


class Rates:
    """What every number of target slots made of the time."""

    def __init__(self) -> None:
        self._laps: dict[int, deque[_Lap]] = {}
        self._slots = 0
        self._arrived = False

    def add(self, slots: int, sizes: Sequence[int], seconds: float) -> None:
        """Count a lap.

        Args:
            slots: target slots in force. Laps count from the first in which as many
                are filled: requests stay in the slot in which they began.
            sizes: requests per slot.
            seconds: its wall time.
        """
        live, filled = sum(sizes), sum(size > 0 for size in sizes)
        if slots != self._slots:
            self._slots, self._arrived = slots, False
        self._arrived = self._arrived or filled == min(slots, live)
        if self._arrived:
            laps = self._laps.setdefault(slots, deque(maxlen=KEPT_LAPS))
            laps.append(_Lap(live, seconds))

    def forget(self, slots: int | None = None) -> None:
        """Forget the laps of a number of slots, or all."""
        if slots is None:
            self._laps.clear()
        else:
            self._laps.pop(slots, None)

    def is_known(self, slots: int) -> bool:
        """Whether there are laps enough for a rate."""
        return len(self._laps.get(slots, ())) >= LEAST_LAPS

    def log_ratio(self, slots: int, other: int) -> float | None:
        """Logarithm of the rate with ``slots`` over that with ``other``; None where
        one is not known, or the load was another."""
        if not self.is_known(slots) or not self.is_known(other):
            return None
        live, rate = _mean(self._laps[slots])
        other_live, other_rate = _mean(self._laps[other])
        if abs(live - other_live) > SAME_LOAD * other_live:
            return None
        return math.log(rate / other_rate)


def _mean(laps: Sequence[_Lap]) -> tuple[float, float]:
    """Requests in flight, and tokens per second; a lap makes one token of each."""
    tokens = sum(lap.live for lap in laps)
    return tokens / len(laps), tokens / sum(lap.seconds for lap in laps)
