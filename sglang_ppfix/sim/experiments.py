"""Experiments on top of even filling. Not in the plugin: docs/policies.md."""

from itertools import islice

from sglang_ppfix.policy import TurnPlan, token_share

from .filling import Balanced
from .server import Server
from .slot import NEVER, Forward, Slot


class Landing(Balanced):
    """Looks at the slot in which a chunked prompt will decode.

    A prompt of ``k`` chunks that starts in slot ``i`` decodes in slot ``i + k - 1``.
    The rule asks slot ``i`` for a place, so a place that only chunked prompts could
    take is never filled, and the slots behind it are overfilled.
    """

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._number = 0

    def turn(self, number: int, turn: int) -> bool:
        self._number = number
        return super().turn(number, turn)

    def _turns_more(self, rest: int, first: int) -> int:
        """Turns after the present one until ``rest`` tokens are prefilled.

        Args:
            rest: tokens to prefill.
            first: of them, what the present turn can still take.
        """
        size = self.server.chunked_prefill_size
        return 0 if size is None else max(-(-(rest - first) // size), 0)

    def _occupied(self) -> tuple[list[int], bool]:
        size, chunk = self.server.chunked_prefill_size, self.chunk
        if chunk is None or size is None:
            return super()._occupied()
        more = self._turns_more(chunk.to_prefill - chunk.prefilled, size)
        occupancy = self.occupancy.copy()
        occupancy[(self._number + more) % len(occupancy)] += 1
        return occupancy, False

    def _plan_turn(self, slot: Slot) -> None:
        super()._plan_turn(slot)
        self._token_share = self._share_tokens(slot, self._turn_plan)

    def _share_tokens(self, slot: Slot, plan: TurnPlan) -> int:
        # This slot may be full itself: its prompt decodes elsewhere.
        in_flight = [0]
        for other in self.slots[: plan.slots]:
            takes = self.occupancy[other.number] < self._plan(other).share
            if other is not slot and takes:
                in_flight.append(other.forward.tokens if other.forward else 0)
        admissible = islice(self.waiting, plan.admissible)
        return token_share(sum(r.to_prefill for r in admissible), in_flight)

    def _refuses(self, slot: Slot, admitted: int, tokens: int) -> bool:
        size = self.server.chunked_prefill_size or 0
        more = self._turns_more(self.waiting[0].to_prefill, size - tokens)
        if not more:
            return super()._refuses(slot, admitted, tokens)
        lands = self.slots[(slot.number + more) % len(self.slots)]
        if self.occupancy[lands.number] >= self._plan(lands).share:
            return True
        return admitted > 0 and tokens >= self._token_share

    def _shut(self, slot: Slot) -> bool:
        size = self.server.chunked_prefill_size or 0
        if self._turns_more(self.waiting[0].to_prefill, size):
            return False
        return super()._shut(slot)


class Gathered(Landing):
    """Lets prompts gather: takes them in in one lap, then in none for a while.

    A lone prefill stretches the lap of all slots, however many of them prefill in it.
    So a lap opens when enough prompts wait, or when one has waited long.

    Attributes:
        together: prompts that open a lap.
        patience: laps after which one opens in any case.
    """

    def __init__(self, server: Server, together: int = 4, patience: int = 12) -> None:
        super().__init__(server)
        self.together = min(together, server.max_running_requests)
        self.patience = patience
        self._opens = NEVER
        self._closes = 0

    def turn(self, number: int, turn: int) -> bool:
        if self.waiting and turn >= self._closes:
            lap = len(self.slots)
            self._opens = min(self._opens, turn + self.patience * lap)
            enough = min(len(self.waiting), self.memory.rows) >= self.together
            if enough or turn >= self._opens or not self.live:
                self._opens, self._closes = NEVER, turn + lap
                self.version += 1
        return super().turn(number, turn)

    def next_event(self, turn: int) -> int:
        event = super().next_event(turn)
        if self.waiting:
            event = min([event, *(t for t in (self._opens, self._closes) if t > turn)])
        return event

    def _prefill(self, slot: Slot, turn: int) -> Forward | None:
        if self.chunk is None and turn >= self._closes:
            self.refused[slot.number] = self.version
            return None
        return super()._prefill(slot, turn)

    def _shut(self, slot: Slot) -> bool:
        return False
