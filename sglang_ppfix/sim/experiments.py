"""Experiments on top of even filling. Not in the plugin: docs/policies.md."""

from .filling import Balanced
from .server import Server
from .slot import NEVER, Forward, Slot


class Gathered(Balanced):
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
