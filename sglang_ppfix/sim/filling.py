"""Policies that keep SGLang's scheduler and change what a slot takes in."""

from collections.abc import Iterable
from functools import lru_cache
from itertools import islice

from sglang_ppfix.policy import TurnPlan, plan_turn, token_share

from .request import Request
from .scheduler import Scheduler
from .server import Server
from .slot import Slot


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
    occupancy: tuple[int, ...],
    slot: int,
    waiting: int,
    rows: int,
    target: int,
    cap: int,
    chunk: bool,
) -> TurnPlan:
    """``plan_turn``; a ring comes by the same few states again and again."""
    return plan_turn(occupancy, slot, waiting, rows, target, cap, chunk)


class Balanced(Scheduler):
    """The plugin: ``sglang_ppfix.policy`` decides, asked as the hooks ask it."""

    def __init__(self, server: Server) -> None:
        super().__init__(server, server.derived_cap)
        self._target = server.filled_slots
        # Plans of one version. Slots that hold the same get the same answer.
        self._planned = -1
        self._plans: dict[tuple[int, int], TurnPlan] = {}
        self._turn_plan = TurnPlan(0, 0, 0, 0)
        self._token_share = 0
        # Per slot: (live, waiting, cap) when its latch was last tried.
        self._tried: list[tuple[int, int, int] | None] = [None] * server.slots

    def _open(self, slot: Slot) -> None:
        if not slot.full or not self.waiting:
            return
        plan = self._plan(slot)
        now = (self.live, len(self.waiting), self.cap)
        if plan.share > len(slot.running) and self._tried[slot.number] != now:
            self._tried[slot.number] = now
            slot.full = False

    def _plan(self, slot: Slot) -> TurnPlan:
        if self._planned != self.version:
            self._planned = self.version
            self._plans.clear()
        number = slot.number
        occupancy, chunk = self._occupied()
        key = (occupancy[number], 0 if number < self._target else number)
        plan = self._plans.get(key)
        if plan is None:
            rows = self.server.max_running_requests
            plan = self._plans[key] = _planned(
                tuple(occupancy),
                number,
                # More waiting requests than rows are as good as rows.
                min(len(self.waiting), rows),
                rows,
                self._target,
                self.cap,
                chunk,
            )
        return plan

    def _occupied(self) -> tuple[list[int], bool]:
        """Requests per slot, and whether a chunk in progress is in none of them."""
        return self.occupancy, self.chunk is not None

    def _plan_turn(self, slot: Slot) -> None:
        self._turn_plan = plan = self._plan(slot)
        if plan.share > len(slot.running):
            self._token_share = self._share_tokens(slot, plan)

    def _refuses(self, slot: Slot, admitted: int, tokens: int) -> bool:
        if len(slot.running) + admitted >= self._turn_plan.share:
            return True
        return admitted > 0 and tokens >= self._token_share

    def _share_tokens(self, slot: Slot, plan: TurnPlan) -> int:
        # A slot without room takes no prompt, whatever its part would be.
        in_flight = [
            other.forward.tokens if other.forward and other is not slot else 0
            for other in self.slots[: plan.slots]
            if self.occupancy[other.number] < plan.share
        ]
        admissible = islice(self.waiting, plan.admissible)
        return token_share(sum(r.to_prefill for r in admissible), in_flight)

    def _shut(self, slot: Slot) -> bool:
        latched = super()._shut(slot)
        if len(slot.running) >= self._plan(slot).share:
            return latched or (not slot.full and self._room(slot) > 0)
        now = (self.live, len(self.waiting), self.cap)
        return latched and self._tried[slot.number] == now

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
