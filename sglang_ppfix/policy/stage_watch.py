"""Whether the stages became other stages, as with much longer contexts. Pure."""

from collections.abc import Mapping, Sequence
from statistics import median

#: Times that differ by this factor.
CHANGED = 1.5
#: Laps after a change of the ring in which times still move: they are running means,
#: and stages that share a bottleneck take others as fewer are busy.
SETTLING_LAPS = 96

Stages = Sequence[Mapping[int, float]]


class StageWatch:
    """Compares decode times with earlier ones, at the same slots and load."""

    def __init__(self) -> None:
        self._ring = (0, 0)
        self._since = 0
        self._before: dict[tuple[int, int], Stages] = {}
        #: Whether the last report differed, and the next one has to confirm it.
        self.differed = False
        self._last: Stages = []

    def changed(self, lap: int, ring: tuple[int, int], stages: Stages) -> bool:
        """Whether any stage took another time than before in this report and in the
        last one; begins anew if so.

        Args:
            lap: laps so far.
            ring: target slots in force, and a number for the load.
            stages: decode time by micro-batch size, ms, one per pipeline stage.
        """
        if ring != self._ring:
            self._ring, self._since, self.differed = ring, lap, False
        before = self._before.get(ring)
        if before is None:
            if lap - self._since >= SETTLING_LAPS:
                self._before[ring] = [dict(stage) for stage in stages]
            return False
        if stages == self._last:
            return False
        self._last = stages
        # One forward that hung is forgotten by the next report.
        differed, self.differed = self.differed, False
        if any(map(_differs, before, stages)):
            self.differed = not differed
            if differed:
                self._ring = (0, 0)
                self._before.clear()
            return differed
        # Sizes that were not seen before are known from now on.
        self._before[ring] = [
            {**now, **old} for now, old in zip(stages, before, strict=True)
        ]
        return False


def _differs(before: Mapping[int, float], now: Mapping[int, float]) -> bool:
    ratios = [now[size] / before[size] for size in now if size in before]
    return bool(ratios) and not 1 / CHANGED < median(ratios) < CHANGED
