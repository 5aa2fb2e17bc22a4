"""Numbers of slots that lost, and for how long that is remembered. Pure."""

from dataclasses import dataclass

#: Laps for which a failure is remembered, twice as long after each further one.
REMEMBERED = 10_000
#: A lap that differs by this factor from the one at a failure makes it void.
OTHER_LAP = 1.5


@dataclass
class _Failure:
    lap: int
    better_s: float
    times: int


class Failures:
    """By load and number of filled slots."""

    def __init__(self) -> None:
        self._failures: dict[tuple[int, int], _Failure] = {}

    def add(self, load: int, filled: int, lap: int, better_s: float) -> None:
        """``filled`` slots lost at ``load`` in lap number ``lap`` against some other
        number, whose laps took ``better_s`` seconds (0 if not known)."""
        before = self._failures.get((load, filled))
        times = 0 if before is None else before.times + 1
        self._failures[load, filled] = _Failure(lap, better_s, times)

    def bars(self, load: int, filled: int, lap: int, lap_s: float) -> bool:
        """Whether a trial is not worth it yet, now that laps take ``lap_s`` seconds."""
        failure = self._failures.get((load, filled))
        if failure is None:
            return False
        same = 1 / OTHER_LAP < lap_s / (failure.better_s or lap_s) < OTHER_LAP
        return same and lap - failure.lap < REMEMBERED << failure.times
