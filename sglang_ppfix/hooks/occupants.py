"""Who is in the slots: read from the scheduler, each request counted once."""

from collections.abc import Iterator
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

    def count(self, slot: int | None = None, batch: Any = None) -> list[int]:
        """Requests per slot, each counted in the slot that keeps it.

        In a slot's turn ``batch`` stands for that slot: a prefill has been merged
        into it, and ``running_mbs`` is stale there. Between iterations there is no
        such slot. A chunked prefill in progress counts nowhere.
        """
        counts = []
        for each in range(self._length):
            if each == slot:
                counts.append(sum(not req.finished() for req in batch.reqs))
            else:
                counts.append(sum(1 for _ in self.of(each)))
        return counts

    def of(self, slot: int) -> Iterator[Any]:
        """Requests of a slot at rest, prefills in flight included."""
        running = self._scheduler.running_mbs[slot]
        for req in running.reqs:
            if not req.finished():
                yield req
        launched = self._scheduler.mbs[slot]
        if launched is None or launched is running:
            return
        # A prefill is merged into running_mbs in the slot's next turn only. The
        # batch still names a chunked request that has since moved on.
        kept = set(map(id, running.reqs))
        kept.add(id(launched.chunked_req))
        kept.add(id(self._scheduler.chunked_req))
        for req in launched.reqs:
            if id(req) not in kept and not req.finished():
                yield req

    def of_others(self, slot: int) -> Iterator[Any]:
        """Requests of all slots but one."""
        for each in range(self._length):
            if each != slot:
                yield from self.of(each)

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
            prefills = launched is not None and launched.forward_mode.is_extend()
            if prefills and each != slot:
                tokens[each] = launched.extend_num_tokens
        return tokens
