"""``batch_is_full`` is tried again: in the hooks and in the simulator."""

from types import SimpleNamespace

import pytest

from sglang_ppfix.hooks.ring import Ring
from sglang_ppfix.settings import Policy
from sglang_ppfix.sim import Server
from sglang_ppfix.sim.filling import Balanced
from sglang_ppfix.sim.request import Request


class Hooked:
    """Slot 0 of the hooks' ring, in which one request waits."""

    def __init__(self):
        self.ring = Ring.__new__(Ring)
        self.ring.slot, self.ring.policy = 0, Policy.BALANCED
        self.ring._latch_tried = [None, None]
        self.ring.scheduler = SimpleNamespace(
            chunked_req=None,
            waiting_queue=[object()],
            req_to_token_pool=SimpleNamespace(available_size=lambda: 1),
        )
        self.ring.plan = lambda turn: SimpleNamespace(live=3)
        self.batch = SimpleNamespace(reqs=[], batch_is_full=False)

    def turn(self, latched):
        """Whether the slot is latched once its turn has begun."""
        self.batch.batch_is_full = latched
        self.ring.begin_turn(self.batch)
        return self.batch.batch_is_full


class Simulated:
    """The same in the simulator."""

    def __init__(self):
        self.scheduler = Balanced(Server(2, max_running_requests=8))
        self.scheduler.arrive(Request(0, 0.0, 8, 8, 8))

    def turn(self, latched):
        """Whether the slot is latched once its turn has begun."""
        slot = self.scheduler.slots[0]
        slot.full = latched
        self.scheduler._open(slot)
        return slot.full


@pytest.mark.parametrize("make", [Hooked, Simulated])
def test_a_new_latch_is_tried_although_the_ring_looks_the_same(make) -> None:
    """Catches a slot that stays shut: a closed loop comes back to the same numbers, and
    the latch of now is not the one that was tried then."""
    slot = make()
    assert not slot.turn(latched=True)
    assert slot.turn(latched=True)  # tried in vain: not again for the same numbers
    assert not slot.turn(latched=False)  # a request left
    assert not slot.turn(latched=True)
