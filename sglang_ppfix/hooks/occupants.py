"""Who is in the slots: read from the scheduler, each request counted once."""

from itertools import chain
from typing import Any


class Occupants:
    """Unfinished requests of the ring, slot by slot.

    Args:
        scheduler: whose ``running_mbs``, ``mbs`` and ``chunked_req`` are read.
        length: slots of the ring.
    """

    def __init__(self, scheduler: Any, length: int) -> None:
        self._scheduler = scheduler
        self._length = length

    def count(self) -> list[int]:
        """Requests per slot between iterations, each in the slot that keeps it."""
        return [len(self.of(slot)) for slot in range(self._length)]

    def by_slot(self, slot: int, batch: Any) -> list[list[Any]]:
        """Requests of each slot, each in the slot that keeps it, in a slot's turn.

        ``batch`` stands for that slot: a prefill has been merged into it, and
        ``running_mbs`` is stale there. A chunked prefill in progress is nowhere.
        """
        return [
            _unfinished(batch.reqs) if each == slot else self.of(each)
            for each in range(self._length)
        ]

    def of(self, slot: int) -> list[Any]:
        """Requests of a slot at rest, prefills in flight included."""
        running = self._scheduler.running_mbs[slot]
        launched = self._scheduler.mbs[slot]
        live = _unfinished(running.reqs)
        if launched is None or launched is running:
            return live
        # A prefill is merged into running_mbs in the slot's next turn only. The
        # batch still names a chunked request that has since moved on.
        kept = set(map(id, running.reqs))
        kept.add(id(launched.chunked_req))
        kept.add(id(self._scheduler.chunked_req))
        return live + [req for req in _unfinished(launched.reqs) if id(req) not in kept]

    def of_others(self, slot: int) -> list[Any]:
        """Requests of all slots but one."""
        slots = (self.of(each) for each in range(self._length) if each != slot)
        return list(chain.from_iterable(slots))

    def all(self) -> list[Any]:
        """Requests of all slots, and a chunked prefill in progress."""
        live = [req for slot in range(self._length) for req in self.of(slot)]
        chunked = self._scheduler.chunked_req
        if chunked is not None and not chunked.finished():
            live.append(chunked)
        return live

    def prefill_tokens(self, slot: int) -> list[int]:
        """Tokens of the prefill in flight per slot, 0 for ``slot`` itself."""
        tokens = [0] * self._length
        for each, launched in enumerate(self._scheduler.mbs):
            if launched is None or each == slot:
                continue
            # Nearly always a decode, and is_extend() compares with six modes.
            mode = launched.forward_mode
            if not mode.is_decode() and mode.is_extend():
                tokens[each] = launched.extend_num_tokens
        return tokens


def _unfinished(reqs: list[Any]) -> list[Any]:
    return [req for req in reqs if not req.finished()]
