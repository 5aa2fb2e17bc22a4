"""What the search for the number of slots sees, and what it answers. Pure."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class View(NamedTuple):
    """What the search needs to know of the ring.

    Attributes:
        slots: target slots.
        most: target slots at most, the whole ring.
        widest: target slots that a load begins with where nothing else is known.
        cap: micro-batch size that must not be exceeded; None where the plugin derives
            it from the number of slots.
        stages: decode time by micro-batch size, ms, one per stage; empty while unknown.
    """

    slots: int
    most: int
    widest: int
    cap: int | None
    stages: Sequence[Mapping[int, float]]

    def filled(self, demand: int) -> int:
        """Slots that ``demand`` requests fill now."""
        return min(self.slots, self.most, demand)

    def fewest(self, live: int) -> int:
        """Slots that a given cap needs for so many requests."""
        if self.cap is None:
            return 1
        return min(-(-live // self.cap), self.most, live)

    def slots_for(self, filled: int, demand: int) -> int:
        """Target slots that fill so many: fewer were chosen, or more; else as many as a
        load begins with, which leaves them open to one that grows."""
        return self.widest if filled == min(self.widest, demand) else filled


class Move(NamedTuple):
    """Target slots from now on, maybe those of before, and why."""

    slots: int
    why: str
