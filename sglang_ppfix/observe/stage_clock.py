"""How long a stage's device works and waits, by events that cost no synchronisation.

Around every forward two events are recorded on the forward stream and read once they
have passed. On a GPU they are CUDA events; the lab's emulated device has the same
interface on its virtual clock.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

#: Forwards whose events are read at most per call: the hot path stays short.
MAX_READ = 8
#: Weight of the newest value in a running mean of decode time.
NEWEST = 0.1
#: Forwards after which a size that was not seen again is forgotten.
FORGOTTEN = 2000
#: Forwards after which a time that contradicts a newer one is dropped, and between two
#: looks for such: no multiple of a lap, so that every slot's size comes to be compared.
DOUBTED, DOUBT_EVERY = 256, 61
#: A stage is another stage when this many forwards of one size in a row differ from
#: their mean by this factor.
OTHER_STAGE = (16, 1.5)


class Launch(NamedTuple):
    """One forward of this stage."""

    size: int
    decode: bool
    #: Whether the ring held requests while the stage waited for this forward.
    ring_was_busy: bool
    start: Any
    end: Any


class StageClock:
    """Busy and waiting time of one stage, in seconds of device time.

    Attributes:
        busy: device time in forwards.
        waiting: device idle while the ring held requests (waiting for the pipeline).
        nothing_to_do: device idle while it held none.
        decode_ms: mean device time of a decode forward, by micro-batch size; the first
            of each size left out.
        prefills: forwards that were no pure decode.
    """

    def __init__(self, new_event: Callable[[], Any]) -> None:
        self.busy = 0.0
        self.waiting = 0.0
        self.nothing_to_do = 0.0
        self.prefills = 0
        self.decode_ms: dict[int, float] = {}
        self._decodes = 0
        self._seen: dict[int, int] = {}
        self._strange = 0
        self._new_event = new_event
        self._pending: deque[Launch] = deque()
        self._spare: list[Any] = []
        self._last_end: Any = None

    def start(self) -> Any:
        """Mark the start of a forward on the current stream."""
        event = self._spare.pop() if self._spare else self._new_event()
        event.record()
        return event

    def end(self, start: Any, size: int, decode: bool, ring_was_busy: bool) -> None:
        """Mark its end; ``size`` is the number of requests of the micro-batch."""
        self._pending.append(Launch(size, decode, ring_was_busy, start, self.start()))
        self._read()

    def pause(self) -> None:
        """Nothing is timed for a while: the gap is no waiting time."""
        if self._last_end is not None or self._pending:
            self._last_end = None
            self._pending.clear()

    def report(self) -> dict[str, Any]:
        """Totals so far, as plain values."""
        return {
            "busy_s": self.busy,
            "waiting_s": self.waiting,
            "nothing_to_do_s": self.nothing_to_do,
            "decode_ms": dict(self.decode_ms),
        }

    def _read(self) -> None:
        for _ in range(MAX_READ):
            if not self._pending or not self._pending[0].end.query():
                return
            self._count(self._pending.popleft())

    def _count(self, launch: Launch) -> None:
        took = launch.start.elapsed_time(launch.end)
        self.busy += took / 1e3
        if self._last_end is not None:
            gap = max(self._last_end.elapsed_time(launch.start), 0.0) / 1e3
            if launch.ring_was_busy:
                self.waiting += gap
            else:
                self.nothing_to_do += gap
            self._spare.append(self._last_end)
        self._last_end = launch.end
        self._spare.append(launch.start)
        if not launch.decode:
            self.prefills += 1
            return
        self._count_decode(launch.size, took)

    def _count_decode(self, size: int, took: float) -> None:
        self._decodes += 1
        if size not in self._seen:
            # It may have paid for a kernel to be compiled or chosen.
            self._seen[size] = self._decodes
            return
        times, factor = OTHER_STAGE
        mean = self.decode_ms.get(size, took)
        strange = not mean / factor <= took <= mean * factor
        self._strange = self._strange + 1 if strange else 0
        if self._strange >= times:
            # What was measured of other sizes no longer holds.
            self.decode_ms.clear()
            self._seen.clear()
            self._strange, mean = 0, took
        self.decode_ms[size] = mean + NEWEST * (took - mean)
        self._seen[size] = self._decodes
        if self._decodes % DOUBT_EVERY == 0:
            self._drop_contradicted(size, factor)
        if self._decodes % FORGOTTEN == 0:
            for old, seen in list(self._seen.items()):
                if self._decodes - seen > FORGOTTEN:
                    del self._seen[old]
                    self.decode_ms.pop(old, None)

    def _drop_contradicted(self, size: int, factor: float) -> None:
        """A larger micro-batch is not much faster: the time not seen lately is old."""
        took = self.decode_ms[size]
        for other, ms in list(self.decode_ms.items()):
            falls = ms * factor < took if other > size else ms > took * factor
            if other != size and falls and self._decodes - self._seen[other] > DOUBTED:
                del self.decode_ms[other], self._seen[other]


def event_factory(scheduler: Any) -> Callable[[], Any] | None:
    """How this scheduler's device makes events that tell time; None if it cannot."""
    module = scheduler.device_module
    event = getattr(module, "Event", None)
    if event is None or not hasattr(event, "elapsed_time"):
        return None
    return lambda: event(enable_timing=True)
