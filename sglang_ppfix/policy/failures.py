"""Numbers of slots that lost, and for how long that is remembered. Pure."""

from dataclasses import dataclass

#: Laps for which a failure is remembered, twice as long after each further one, up to
#: so many times: no verdict is for ever.
REMEMBERED, MOST_DOUBLINGS = 10_000, 4
#: A lap that differs by this factor from the one at a failure makes it void.
OTHER_LAP = 1.5


@dataclass
class _Failure:
    lap: int
    better_s: float
    times: int

    def holds(self, lap_s: float) -> bool:
        """Whether laps of ``lap_s`` seconds are such as those it was made of."""
        return 1 / OTHER_LAP < lap_s / (self.better_s or lap_s) < OTHER_LAP


class Failures:
    """By load and number of filled slots."""

    def __init__(self) -> None:
        self._failures: dict[tuple[int, int], _Failure] = {}

    def add(self, load: int, filled: int, lap: int, better_s: float) -> None:
        """``filled`` slots lost at ``load`` in lap number ``lap`` against some other
        number, whose laps took ``better_s`` seconds (0 if not known)."""
        before = self._failures.get((load, filled))
        times = 0
        if before is not None and (not better_s or before.holds(better_s)):
            times = min(before.times + 1, MOST_DOUBLINGS)
        self._failures[load, filled] = _Failure(lap, better_s, times)

    def forget(self, load: int, filled: int) -> None:
        """``filled`` slots won at ``load``."""
        self._failures.pop((load, filled), None)

    def bars(self, load: int, filled: int, lap: int, lap_s: float) -> bool:
        """Whether a trial is not worth it yet, now that laps take ``lap_s`` seconds."""
        failure = self._failures.get((load, filled))
        if failure is None:
            return False
        recent = lap - failure.lap < REMEMBERED << failure.times
        return recent and failure.holds(lap_s)
