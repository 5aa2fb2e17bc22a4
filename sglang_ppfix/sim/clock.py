"""Time in the ring: when each rank's CPU and device do what.

The recurrence is compiled by Numba where it is installed (SGLang 0.5.23 requires it,
this package does not). Without it the same function runs in plain Python: the same
times, some 60 times slower a turn (docs/simulator.md has the figures).
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from . import _kernel
from .profile import Profile, Row
from .server import Server


@cache
def _compiled() -> Callable[..., tuple[int, int, float]] | None:
    try:
        import numba
    except ImportError:
        return None
    # IEEE arithmetic as written (no fastmath): results must not depend on Numba.
    return numba.njit(cache=True)(_kernel.run_turns)  # type: ignore[no-any-return]


class RingClock:
    """The timing of a ring, turn by turn; knows nothing of requests.

    Attributes:
        now: when rank 0's scheduler comes to its next turn, seconds. After a turn, the
            result of the following slot has been processed at this moment.
    """

    def __init__(
        self, profile: Profile, server: Server, compiled: bool | None = None
    ) -> None:
        """Start at time 0 with an empty ring.

        Args:
            profile: stage, hop and CPU times.
            server: for the length of the ring and the order of a turn.
            compiled: True insists on Numba, False on plain Python; None takes what is
                there.
        """
        self.now = 0.0
        ranks = profile.pp_size
        self._lap = server.slots
        self._run = _kernel.run_turns if compiled is False else _compiled()
        self._arrays = self._run is not None and compiled is not False
        if self._run is None:
            if compiled:
                raise ValueError("compiled=True needs numba, which is not installed")
            self._run = _kernel.run_turns
        if server.ideal_loop:
            self._order = _kernel.IDEAL
        elif server.async_depth:
            self._order = _kernel.EXCHANGE_FIRST
        else:
            self._order = _kernel.LAUNCH_FIRST
        costs = [0.0] * _kernel.COSTS
        if not server.ideal_loop:
            costs[_kernel.IDLE] = profile.cpu.idle
            costs[_kernel.LAUNCH] = profile.cpu.launch
            costs[_kernel.PROCESS] = profile.cpu.process
            costs[_kernel.HOP_CPU] = profile.cpu.message
        costs[_kernel.HOP] = profile.hop
        costs[_kernel.BACK] = profile.way_back
        self._idle = costs[_kernel.IDLE]
        self._costs: Any = costs
        self._ranks: Any = [[0.0] * ranks for _ in range(_kernel.ROWS)]
        self._turns: Any = [[0.0] * (ranks + 3) for _ in range(self._lap + ranks + 1)]
        if self._arrays:
            import numpy as np

            self._costs, self._ranks, self._turns = map(
                np.array, (self._costs, self._ranks, self._turns)
            )
        # Room for a window of turns before the first one, none of them filled.
        self._turn = len(self._turns)
        self._empty = (0.0,) * (ranks + 3)
        self._rows: dict[Row | None, Any] = {}
        self._device = self._ranks[_kernel.DEVICE]

    def put(self, row: Row | None) -> None:
        """What the slot of the next turn launches, if not what it launched a lap ago.

        Args:
            row: stage times of the forward; None for none.
        """
        whole = self._rows.get(row)
        if whole is None:
            whole = self._empty if row is None else (*row, 0.0, 0.0, 1.0)
            if self._arrays:
                import numpy as np

                whole = np.array(whole)
            self._rows[row] = whole
        self._turns[self._turn % len(self._turns)][:] = whole

    def run(self, count: int, until: float = float("inf")) -> int:
        """Run up to ``count`` turns.

        Args:
            count: turns to run, at least 1.
            until: stop before a turn that starts at this time or later.

        Returns:
            Turns that passed.
        """
        assert self._run is not None
        passed, worked, self.now = self._run(
            self._turn, count, until, self._order, self._costs, self._ranks, self._turns
        )
        self._turn += worked
        return passed

    def skip(self, until: float) -> int:
        """Let an empty ring spin until ``until``.

        Returns:
            Empty turns that passed: where an arrival finds the ring.
        """
        wait = until - self.now
        if wait <= 0:
            return 0
        turns = int(-(-wait // self._idle)) if self._idle > 0 else 0
        later = turns * self._idle if turns else wait
        # All rows alike: what happened before the pause is over.
        for row in self._ranks[: _kernel.STATE]:
            for p in range(len(row)):
                row[p] += later
        for row in self._turns:
            row[:] = self._empty
        self.now += later
        return turns

    def launched(self, rank: int) -> float:
        """When the device of ``rank`` ends the forward it was given last, seconds."""
        return float(self._device[rank])
