"""Policies without sticky slots: decoding requests are dealt anew in every turn.

SGLang cannot do this today (a request stays in the slot that prefilled it). They show
what moving requests would be worth, and what other engines do. Each is reduced to its
rule; its engine's own loop, preemption and prefix cache are not modelled.
"""

from collections import deque
from itertools import islice

from sglang_ppfix.policy import token_share

from .request import Request
from .scheduler import Scheduler
from .server import Server
from .slot import Forward, Slot


class Pooled(Scheduler):
    """Deals decodes by :meth:`_want`; takes in prompts as long as rows are free.

    Attributes:
        mixes: whether prompts and decodes share a forward; else prompts go first and
            the slot's decodes wait a lap, as in SGLang.
        pool: decoding requests that no slot holds.
    """

    mixes = False

    def __init__(self, server: Server) -> None:
        super().__init__(server, server.max_running_requests)
        self.pool: deque[Request] = deque()

    def _want(self, slot: Slot, decodes: int, new: int) -> int:
        """Decodes of a slot's turn.

        Args:
            slot: whose turn it is.
            decodes: decoding requests of the whole ring.
            new: prompts, or chunks of them, that the turn takes in.
        """
        raise NotImplementedError

    def turn(self, number: int, turn: int) -> bool:
        slot = self.slots[number]
        if self.memory.limited:
            self.count_all(turn)
        due = slot.alarm <= turn
        if due:
            self._settle(slot)
        self._count(slot, turn)
        prefill = None
        if self.chunk is not None or (
            self.waiting and (due or self.refused[number] != self.version)
        ):
            prefill = self._prefill(slot, turn)
        if prefill is not None and not self.mixes:
            self._launch(slot, prefill, turn)
            return True
        dealt = self._deal(slot, len(prefill.prefill) if prefill else 0)
        if not (dealt or due or prefill or self._starving(slot)):
            return False
        forward = self._decode(slot) if slot.running else None
        if prefill is not None:
            decodes = forward.decodes if forward else 0
            forward = Forward(decodes, prefill.prefill, prefill.tokens)
        self._launch(slot, forward, turn)
        return True

    def next_event(self, turn: int) -> int:
        event = super().next_event(turn)
        length, decodes = len(self.slots), self._decodes()
        for later in range(turn + 1, min(event, turn + 1 + length)):
            slot = self.slots[later % length]
            held = len(slot.running)
            if min(self._want(slot, decodes, 0), held + len(self.pool)) != held:
                return later
        return event

    def abort(self, request: Request, turn: int) -> None:
        if request in self.pool:
            self.pool.remove(request)
            self.memory.release(request)
            request.aborted = True
            self.version += 1
            self.gone.append(request)
        else:
            super().abort(request, turn)

    def _decodes(self) -> int:
        return self.live - self.prefilling

    def _deal(self, slot: Slot, new: int) -> bool:
        """Give the slot what it wants; whether it changed."""
        running, pool = slot.running, self.pool
        want = self._want(slot, self._decodes(), new)
        want = min(want, len(running) + len(pool))
        if want == len(running):
            return False
        self.occupancy[slot.number] += want - len(running)
        while len(running) > want:
            request = running[-1]
            slot.leave(request)
            slot.left = False
            pool.append(request)
        while len(running) < want:
            slot.join(pool.popleft())
        self.version += 1
        return True

    def _open(self, slot: Slot) -> None:
        slot.full = False

    def _shut(self, slot: Slot) -> bool:
        return self._room(slot) <= 0

    def _reserved(self, slot: Slot) -> float:
        if not self.memory.limited:
            return 0.0
        kept = [request for other in self.slots for request in other.kept()]
        return self.memory.future([*kept, *self.pool])

    def _split(self, slot: Slot, decodes: int) -> int:
        """An even deal over as many slots as there are stages."""
        stages = self.server.pp_size
        if slot.number >= stages:
            return 0
        each, rest = divmod(decodes, stages)
        return each + (slot.number < rest)


class ExactSplit(Pooled):
    """TD-Pipe's split of decodes: ``floor(R/P)``, and one more in ``R mod P`` turns.

    With SGLang's prompts first instead of TD-Pipe's long phases of one kind.
    """

    def _want(self, slot: Slot, decodes: int, new: int) -> int:
        return self._split(slot, decodes)


class TokenThrottling(Pooled):
    """gLLM (arXiv 2504.14775) as released: ``commit 52fbd4b``.

    Decodes: ``(R + jitter) // P``, 1 where ``R < P``. Prompt tokens: those waiting over
    ``iterp`` turns, at least ``minp``, at most ``maxp`` and less as KV fills.
    """

    mixes = True
    maxp, minp, iterp, kv_threshold = 2048, 32, 8, 0.05

    def _want(self, slot: Slot, decodes: int, new: int) -> int:
        stages = self.server.pp_size
        if slot.number >= stages:
            return 0
        if decodes < stages:
            return 1
        return (decodes + slot.number) // stages

    def _chunk_tokens(self, slot: Slot) -> int | None:
        waiting = self.waiting_tokens
        if self.chunk is not None:
            waiting += self.chunk.to_prefill - self.chunk.prefilled
        tokens = max(waiting // self.iterp, self.minp)
        if self.server.kv_tokens is not None:
            free = self.memory.free / self.server.kv_tokens
            ramp = max((free - self.kv_threshold) / (1 - self.kv_threshold), 0.0)
            tokens = min(tokens, round(ramp * self.maxp))
        # A chunk in progress holds its KV: it must go on.
        return max(min(tokens, self.maxp), self.minp if self.chunk else 0)


class DecodeCap(Pooled):
    """vLLM #57433: established decodes of a turn at most ``ceil(max_num_seqs / P)``.

    Prompts are not capped and share the forward, within ``max_num_batched_tokens``.
    """

    mixes = True
    batched_tokens = 8192

    def _want(self, slot: Slot, decodes: int, new: int) -> int:
        if slot.number >= self.server.pp_size:
            return 0
        return -(-self.server.max_running_requests // self.server.pp_size)

    def _chunk_tokens(self, slot: Slot) -> int | None:
        return max(self.batched_tokens - len(slot.running), 1)


class PooledIdeal(Pooled):
    """What no sticky slot can do: an even split, prompts spread over the lap, mixed."""

    mixes = True

    def _want(self, slot: Slot, decodes: int, new: int) -> int:
        # Prompts count as the decodes that they will be.
        return max(self._split(slot, self.live) - new, 0)

    def _plan_turn(self, slot: Slot) -> None:
        in_flight = [
            other.forward.tokens if other.forward and other is not slot else 0
            for other in self.slots[: self.server.pp_size]
        ]
        admissible = islice(self.waiting, self.memory.rows)
        waiting = sum(request.to_prefill for request in admissible)
        self._share = token_share(waiting, in_flight)

    def _refuses(self, slot: Slot, admitted: int, tokens: int) -> bool:
        return admitted > 0 and tokens >= self._share
