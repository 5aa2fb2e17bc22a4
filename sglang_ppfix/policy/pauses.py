"""When the next trial may begin. Pure."""

#: Laps between two changes at one load, on the average.
PAUSE = 200
#: A pause is as long as the trial before, twice as long after the next at that load,
#: and so on up to this: a load that is never the same is not tried for ever.
LONGEST = 9
#: Doublings of the pause, at most, for trials that taught nothing.
MOST_DOUBLINGS = 5


class Pauses:
    """Counts trials by load, and says when there may be another."""

    def __init__(self) -> None:
        self._trials: dict[int, int] = {}
        self._next = 0

    def are_over(self, lap: int) -> bool:
        """Whether a trial may begin."""
        return lap >= self._next

    def begin(self, load: int, began: int, lap: int, changes: int) -> None:
        """A trial that began in lap ``began`` is over.

        Args:
            load: a number for it.
            began, lap: laps.
            changes: of the number of slots that it made; 0 if it taught nothing.
        """
        took = lap - began
        times = self._trials.get(load, 0)
        self._trials[load] = times + 1
        laps = changes * PAUSE or PAUSE << min(times, MOST_DOUBLINGS)
        pause = max(laps - took, min(times, LONGEST) * took)
        self._next = max(self._next, lap + pause)

    def forget(self) -> None:
        """Other stages: all begins anew, but what is due stays due."""
        self._trials.clear()
