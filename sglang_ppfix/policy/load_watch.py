"""How many requests slots are chosen for, and whether that changed. Pure."""

import math
from collections import deque

#: Laps over which the largest number of requests counts as the load: slots are for
#: the load that comes again, not for the tail of a burst.
PEAK_LAPS = 128
#: A load that grew or shrank by this factor is another load.
LOAD_CHANGED = 1.5
#: Smallest number of requests that makes another load.
LEAST_CHANGE = 2


class LoadWatch:
    """The load of the last laps, against the one that was chosen for.

    Attributes:
        chosen_for: requests in flight; 0 before the first choice.
        differed: whether the load was another in the last look, and the next one has
            to confirm it.
    """

    def __init__(self) -> None:
        self.chosen_for = 0
        self.differed = False
        self._recent: deque[int] = deque(maxlen=PEAK_LAPS)

    def add(self, live: int) -> None:
        """Count a lap with so many requests in flight."""
        self._recent.append(live)

    def pause(self) -> None:
        """Laps were missed."""
        self._recent.clear()

    @property
    def demand(self) -> int:
        """Requests in flight that slots are for; 0 while not known."""
        return max(self._recent, default=0)

    def is_other(self) -> bool:
        """Whether the load is another in this call and was in the last one."""
        demand = self.demand
        factor = demand / max(self.chosen_for, 0.1)
        differs = not 1 / LOAD_CHANGED < factor < LOAD_CHANGED
        differs = differs and abs(demand - self.chosen_for) >= LEAST_CHANGE
        if demand < self.chosen_for and len(self._recent) < PEAK_LAPS:
            differs = False  # the tail of a burst, after a pause
        before, self.differed = self.differed, differs
        return not self.chosen_for or (differs and before)


def bucket(demand: int) -> int:
    """A number for loads that are within a third or so of each other."""
    return round(2 * math.log2(demand))
