"""Laps of the ring as one rank sees them: how long, how full, how uneven."""

import time
from collections.abc import Callable, Sequence

#: Weight of the newest value in a running mean.
NEWEST = 0.05
#: One lap in so many, idle ones too, has its CPU time taken: a call into the kernel a
#: turn.
CPU_EVERY = 8


class Laps:
    """Counts laps in which at least one slot made a forward.

    Attributes:
        count: such laps.
        timed: of them, those that follow no idle one.
        seconds: wall time of the timed ones.
        stretched: laps in which a slot made a prefill.
        filled: mean number of slots that made a forward (recent laps weigh more).
        largest: mean size of the largest micro-batch.
        even: mean size that the same requests would have, spread evenly.
        lap_s: mean wall time of a lap of decodes only.
        sizes: requests per slot in the last lap.
        last_s: wall time of the last lap; None after idling.
        last_decode_s: the same, None also after a prefill in it.
        decode_tokens: tokens that decode forwards made, prefills' first ones left out.
        cpu_filled_s, cpu_empty_s: mean CPU time of the scheduler's thread per turn
            of a slot that makes a forward, and of one that makes none, in one lap of
            ``CPU_EVERY``. Waiting actively for a GPU counts, so on a GPU this is no
            measure of work.
    """

    def __init__(self, length: int, clock: Callable[[], float] = time.monotonic):
        self.count = 0
        self.timed = 0
        self.seconds = 0.0
        self.stretched = 0
        self.filled = 0.0
        self.largest = 0.0
        self.even = 0.0
        self.lap_s = 0.0
        self.last_s: float | None = None
        self.last_decode_s: float | None = None
        self.decode_tokens = 0
        self.cpu_filled_s = 0.0
        self.cpu_empty_s = 0.0
        self._length = length
        self._clock = clock
        self.sizes = [0] * length
        self._prefilled = False
        self._started: float | None = None
        # CPU time when the last turn ended, in a lap in which it is taken.
        self._cpu: float | None = None
        self._laps = 0
        #: Whether any slot made a forward in the last lap.
        self.busy = False

    def end_turn(self, slot: int, size: int, decode: bool, spread: int) -> bool:
        """A slot's iteration is over.

        Args:
            slot: which slot.
            size: requests in its forward, 0 when it made none.
            decode: whether the forward was a pure decode.
            spread: slots that even filling would use.

        Returns:
            Whether this ends a lap in which a slot made a forward.
        """
        if self._cpu is not None:
            self._cpu = self._count_cpu(self._cpu, size > 0)
        self.sizes[slot] = size
        self._prefilled = self._prefilled or (size > 0 and not decode)
        if decode:
            self.decode_tokens += size
        if slot != self._length - 1:
            return False
        return self._end_lap(self.sizes, spread)

    def _end_lap(self, sizes: Sequence[int], spread: int) -> bool:
        self._laps += 1
        self._cpu = time.thread_time() if self._laps % CPU_EVERY == 0 else None
        now = self._clock()
        took = None if self._started is None else now - self._started
        self._started = now
        prefilled, self._prefilled = self._prefilled, False
        was_busy, self.busy = self.busy, any(sizes)
        if not self.busy:
            return False
        self.count += 1
        self.stretched += prefilled
        self.last_s = took if was_busy else None
        self.last_decode_s = None if prefilled else self.last_s
        if was_busy and took is not None:
            self.timed += 1
            self.seconds += took
        if self.last_decode_s is not None:
            self.lap_s = self._mean(self.lap_s, self.last_decode_s)
        self.filled = self._mean(self.filled, sum(size > 0 for size in sizes))
        self.largest = self._mean(self.largest, max(sizes))
        self.even = self._mean(self.even, -(-sum(sizes) // spread))
        return True

    def _count_cpu(self, since: float, filled: bool) -> float:
        """Count what a turn took; what the next one counts from."""
        now = time.thread_time()
        if filled:
            self.cpu_filled_s = self._mean(self.cpu_filled_s, now - since)
        else:
            self.cpu_empty_s = self._mean(self.cpu_empty_s, now - since)
        return now

    @staticmethod
    def _mean(mean: float, value: float) -> float:
        return value if mean == 0 else mean + NEWEST * (value - mean)
