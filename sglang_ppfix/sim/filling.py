"""Policies that keep SGLang's scheduler and change what a slot takes in."""

from collections.abc import Iterable
from functools import lru_cache
from itertools import islice

from sglang_ppfix.policy import (
    TurnPlan,
    good_starts,
    may_start,
    plan_turn,
    token_share,
    turns_more,
)

from .request import Request
from .scheduler import Scheduler
from .server import Server
from .slot import Forward, Slot


class StaticCap(Scheduler):
    """Stock with a cap of one's own: every slot may hold ``ceil(clients / P)``.

    What a user who knows the concurrency can do without the plugin.
    """

    def __init__(self, server: Server, clients: int) -> None:
        slots = min(server.pp_size, server.slots)
        super().__init__(server, max(-(-clients // slots), 1))


class CeilingShare(Scheduler):
    """``share = ceil(demand / P)`` and nothing else, as vllm-rbln #900 ships it.

    Also the prototype that this project began with: no water level, no token share,
    stock's memory budget.
    """

    def __init__(self, server: Server) -> None:
        super().__init__(server, server.derived_cap)

    def _open(self, slot: Slot) -> None:
        slot.full = False

    def _room(self, slot: Slot, held: int = 0) -> int:
        demand = min(self.live + len(self.waiting), self.server.max_running_requests)
        share = max(-(-demand // self.server.filled_slots), 1)
        return min(super()._room(slot, held), share - len(slot.running))

    def _shut(self, slot: Slot) -> bool:
        # The latch that a full slot sets is open again in its next turn.
        return self._room(slot) <= 0


@lru_cache(maxsize=1 << 14)
def _planned(
    occupancy: tuple[int, ...], waiting: int, rows: int, target: int, cap: int
) -> TurnPlan:
    """``plan_turn``; a ring comes by the same few states again and again."""
    return plan_turn(occupancy, waiting, rows, target, cap)


class Balanced(Scheduler):
    """The plugin: ``sglang_ppfix.policy`` decides, asked as the hooks ask it."""

    def __init__(self, server: Server) -> None:
        super().__init__(server, server.derived_cap)
        self._target = server.filled_slots
        # The plan of one version, and the occupancy that it was made from.
        self._planned = -1
        self._turn_plan = TurnPlan((), 0, 0, 0, 0)
        self._occupied = self.occupancy
        self._token_share = 0
        # Per slot: (live, waiting, cap) when its latch was last tried.
        self._tried: list[tuple[int, int, int] | None] = [None] * server.slots
        # Turns in a row that passed the head of the queue on to another slot.
        self._passed = 0
        self._passes_on = False

    def _open(self, slot: Slot) -> None:
        if not slot.full:
            self._tried[slot.number] = None
        elif self._reopens(slot):
            self._tried[slot.number] = (self.live, len(self.waiting), self.cap)
            slot.full = False

    def _reopens(self, slot: Slot) -> bool:
        now = (self.live, len(self.waiting), self.cap)
        return (
            slot.full
            and bool(self.waiting and self.memory.rows)
            and len(slot.running) < self.cap
            and self._tried[slot.number] != now
        )

    def _plan(self, slot: Slot) -> TurnPlan:
        """The plan of ``slot``'s turn; between chunks all slots have the same."""
        if self._planned != self.version:
            self._planned = self.version
            self._occupied = self.occupancy
            if self.chunk is not None:
                rest = self.chunk.to_prefill - self.chunk.prefilled
                more = self._more(rest, 0)
                self._occupied = self.occupancy.copy()
                self._occupied[(slot.number + more) % len(self.slots)] += 1
            self._turn_plan = self._plan_for(self._occupied)
        return self._turn_plan

    def _plan_for(self, occupied: list[int]) -> TurnPlan:
        rows = self.server.max_running_requests
        # More waiting requests than rows are as good as rows.
        waiting = min(len(self.waiting), rows)
        return _planned(tuple(occupied), waiting, rows, self._target, self.cap)

    def _more(self, tokens: int, taken: int) -> int:
        """Turns that a prompt needs after one that has taken in ``taken`` tokens."""
        size = self.server.chunked_prefill_size
        return 0 if size is None else turns_more(tokens, size - taken, size)

    def _takes(self, slot: Slot, admitted: int = 0, tokens: int = 0) -> bool:
        """Whether the head of the queue may start in ``slot``."""
        plan, occupied = self._plan(slot), self._occupied
        if admitted:
            occupied = occupied.copy()
            occupied[slot.number] += admitted
            plan = self._plan_for(occupied)
        more = self._more(self.waiting[0].to_prefill, tokens)
        starts = good_starts(occupied, plan, slot.number, more, self.cap)
        self._passes_on = bool(starts) and self._passed < len(self.slots)
        return may_start(occupied, plan, slot.number, starts, self._passed)

    def _plan_turn(self, slot: Slot) -> None:
        plan = self._plan(slot)
        if plan.admissible:
            self._token_share = self._share_tokens(slot, plan)

    def _refuses(self, slot: Slot, admitted: int, tokens: int) -> bool:
        new = admitted - (self.chunk is not None)
        if not self._takes(slot, new, tokens):
            self._passed += self._passes_on and not new
            return True
        self._passed = 0
        return admitted > 0 and tokens >= self._token_share

    def _prefill(self, slot: Slot, turn: int) -> Forward | None:
        passed = self._passed
        forward = super()._prefill(slot, turn)
        if forward is None and self._passed > passed:
            # Another turn of this slot may be the one that ends the lap.
            self.refused[slot.number] = -1
        return forward

    def _share_tokens(self, slot: Slot, plan: TurnPlan) -> int:
        # A slot without room takes no prompt, whatever its part would be.
        in_flight = [
            other.forward.tokens if other.forward else 0
            for other in self.slots
            if other is not slot
            and self._occupied[other.number] < plan.shares[other.number]
        ]
        admissible = islice(self.waiting, plan.admissible)
        return token_share(sum(r.to_prefill for r in admissible), [0, *in_flight])

    def _shut(self, slot: Slot) -> bool:
        if super()._shut(slot):
            return not self._reopens(slot)
        # Every turn that passes the head on counts.
        return self._room(slot) > 0 and not self._takes(slot) and not self._passes_on

    def _reserved(self, slot: Slot) -> float:
        if not self.memory.limited:
            return 0.0
        reserved = super()._reserved(slot)
        reserved += self.memory.future(self._others(slot))
        chunk, size = self.chunk, self.server.chunked_prefill_size
        if chunk is not None and size is not None:
            rest = chunk.to_prefill - chunk.prefilled - size
            if rest > 0:
                reserved += rest + self.memory.future([chunk])
        return reserved

    def _others(self, slot: Slot) -> Iterable[Request]:
        for other in self.slots:
            if other is not slot:
                yield from other.kept()

    def _last_one(self, request: Request, slot: Slot) -> list[Request]:
        others = list(self._others(slot))
        if not others:
            return super()._last_one(request, slot)
        self._send_back(request, slot)
        return others
