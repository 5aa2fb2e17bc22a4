"""Where prompts in chunks start. Each test names the wrong change it would catch."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_ppfix.policy import good_starts, may_start, plan_turn, turns_more

CHUNK = 10


@st.composite
def rings(draw):
    """Slots, target slots, rows, cap, and prompts that wait: in 1 to 12 chunks."""
    length = draw(st.integers(1, 8))
    rows = draw(st.integers(1, 40))
    return {
        "length": length,
        "slots": draw(st.integers(1, length)),
        "rows": rows,
        "cap": draw(st.integers(1, rows)),
        "prompts": draw(st.lists(st.integers(1, 12 * CHUNK), max_size=40)),
        "first": draw(st.integers(0, length - 1)),
        "outputs": draw(st.lists(st.integers(1, 30), min_size=1, max_size=9)),
    }


class Ring:
    """SGLang's admission with the rule: one chunk in progress, first come first served.

    A request leaves so many of its slot's turns after it landed.
    """

    def __init__(self, ring, leaves=True):
        self.ring = ring
        self.turn = ring["first"]
        self.waiting = deque(ring["prompts"])
        self.held = [[] for _ in range(ring["length"])]
        self.chunk = None
        self.leaves = leaves
        self.started = 0
        self.refused = 0
        self.most_over = 0
        # Whether a request was ever admitted although no start would have landed well.
        self.gave_way = False
        self.passed = 0

    def occupancy(self, slot):
        counts = [len(requests) for requests in self.held]
        if self.chunk is not None:
            more = turns_more(self.chunk, CHUNK, CHUNK)
            counts[(slot + more) % len(counts)] += 1
        return counts

    def land(self, slot):
        outputs = self.ring["outputs"]
        self.held[slot].append(outputs[self.started % len(outputs)])

    def step(self):
        """One turn; whether it took in anything."""
        ring = self.ring
        slot = self.turn % ring["length"]
        self.turn += 1
        if self.leaves:
            self.held[slot] = [left - 1 for left in self.held[slot] if left > 1]
        counts = self.occupancy(slot)
        cap = ring["cap"]
        budget, running = CHUNK, len(self.held[slot])
        if self.chunk is not None:
            budget -= min(self.chunk, CHUNK)
            self.chunk -= CHUNK
            if self.chunk <= 0:
                self.chunk = None
                self.land(slot)
        free = ring["rows"] - sum(counts)
        new = 0
        while self.waiting and budget > 0 and new < free and running + new < cap:
            tokens = self.waiting[0]
            plan = plan_turn(
                counts, len(self.waiting), ring["rows"], ring["slots"], cap
            )
            more = turns_more(tokens, budget, CHUNK)
            lands = (slot + more) % len(counts)
            starts = good_starts(counts, plan, slot, more, cap)
            if not may_start(counts, plan, slot, starts, self.passed):
                self.refused += 1
                self.passed += bool(starts) and not new
                break
            self.passed = 0
            if counts[lands] >= min(plan.shares[lands], cap):
                self.gave_way = True
            self.waiting.popleft()
            self.started += 1
            new += 1
            counts[lands] += 1
            if more:
                self.chunk = tokens - budget
                budget = 0
            else:
                budget -= tokens
                self.land(slot)
        return new

    def run(self, turns):
        return [self.step() for _ in range(turns)]


@given(rings())
def test_nothing_is_starved(ring):
    """Catches a prompt that waits for ever: for a slot that starts nothing, for a slot
    in which no start lands, or for one that others keep full."""
    model = Ring(ring)
    laps = sum(ring["outputs"]) + 13
    model.run(ring["length"] * laps * (len(ring["prompts"]) + 1))
    assert not model.waiting
    assert model.chunk is None
    assert not any(model.held)


@given(rings(), st.integers(1, 12 * CHUNK))
def test_a_lone_request_on_an_idle_ring_starts_at_once(ring, prompt):
    """Catches a share that is asked of the wrong slot: with all slots filled, the first
    turn takes it; with some, the first whose prompt lands in one of them."""
    model = Ring({**ring, "prompts": [prompt]})
    length = ring["length"]
    taken = model.run(length).index(1)
    if model.refused == 0:
        assert taken == 0
    else:
        # One more turn would have been one too many.
        more = turns_more(prompt, CHUNK, CHUNK)
        starts = [(ring["first"] + turn) % length for turn in range(length)]
        plan = plan_turn([0] * length, 1, ring["rows"], ring["slots"], ring["cap"])
        well = [plan.shares[(start + more) % length] > 0 for start in starts]
        assert taken == well.index(True)
    if ring["slots"] == length:
        assert taken == 0


@given(rings())
def test_nobody_lands_above_the_share_unless_there_is_no_other_start(ring):
    """Catches a prompt that overfills a slot while another turn of the lap would land
    it well, and one whose chunk in progress counts nowhere."""
    model = Ring(ring, leaves=False)
    model.run(ring["length"] * 13 * (len(ring["prompts"]) + 1))
    if not model.gave_way:
        demand = min(len(ring["prompts"]), ring["rows"])
        slots = max(ring["slots"], -(-demand // ring["cap"]))
        even = -(-demand // min(slots, ring["length"]))
        assert max(map(len, model.held)) <= min(max(even, 1), ring["cap"])


@given(
    st.integers(1, 16), st.integers(0, 64), st.integers(1, 12 * CHUNK), st.integers(0)
)
def test_equal_prompts_land_evenly(slots, waiting, prompt, first):
    """Catches the rule of the slot whose turn it is: it overfills every slot that is k
    turns behind one with room."""
    ring = {
        **{"length": slots, "slots": slots, "rows": 80, "cap": 80, "first": first},
        **{"prompts": [prompt] * waiting, "outputs": [1]},
    }
    model = Ring(ring, leaves=False)
    model.run(slots * 13 * (waiting + 1))
    sizes = [len(requests) for requests in model.held]
    assert sum(sizes) == waiting
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("tokens", "first", "chunk", "more"),
    [
        (10, 10, 10, 0),
        (11, 10, 10, 1),
        (11, 1, 10, 1),
        (12, 1, 10, 2),
        (3, 64, 64, 0),
        (2000, 1024, 1024, 1),
        (2049, 1024, 1024, 2),
    ],
)
def test_turns_more(tokens, first, chunk, more):
    """Catches an off-by-one: the prompt would land a slot beside the one it asked."""
    assert turns_more(tokens, first, chunk) == more


@pytest.mark.parametrize(
    ("occupancy", "slot", "more", "cap", "allowed"),
    [
        ([2, 2, 2, 1], 2, 1, 8, True),  # lands in 3, which has room
        ([2, 2, 2, 1], 3, 1, 8, False),  # lands in 0: slot 2 comes within a lap
        ([2, 2, 2, 1], 3, 4, 8, True),  # a whole lap of chunks: lands in 3
        # SGLang starts nothing in slot 2: one row in eight may stay empty for a while,
        ([2, 2, 2, 1], 3, 1, 2, False),
        ([1, 0, 1, 0], 1, 1, 1, True),  # a half of them may not.
    ],
)
def test_examples(occupancy, slot, more, cap, allowed):
    """Catches a change of meaning that properties leave open."""
    rows = 4 * cap
    plan = plan_turn(occupancy, 1 if cap == 8 else rows, rows, slots=4, cap=cap)
    starts = good_starts(occupancy, plan, slot, more, cap)
    assert may_start(occupancy, plan, slot, starts, 0) is allowed


@pytest.mark.parametrize("slot", [2, 3])
def test_one_that_waits_starts_where_rows_are_plenty(slot):
    """Catches counting the requests that wait for the rows that are free: one prompt
    waits for ever, half of the rows being free."""
    occupancy = [8, 8, 0, 0]
    plan = plan_turn(occupancy, 1, 32, slots=4, cap=8)
    starts = good_starts(occupancy, plan, slot, 2, 8)
    assert starts == []
    assert may_start(occupancy, plan, slot, starts, 0)
    # With fewer rows free it waits for a request to end.
    plan = plan_turn([8, 8, 1, 0], 1, 32, slots=4, cap=8)
    assert not may_start([8, 8, 1, 0], plan, slot, [], 0)


def test_who_was_passed_on_for_a_lap_starts():
    """Catches slots that pass a prompt on to each other for ever: an estimate was
    wrong, or the one they mean cannot start it. PP2, one runs in slot 0; slot 0 counts
    three chunks, slot 1 two."""
    occupancy = [1, 0]
    plan = plan_turn(occupancy, 1, 8, slots=2, cap=4)
    passed = []
    for slot, more in ((0, 2), (1, 1), (0, 2), (1, 1)):
        starts = good_starts(occupancy, plan, slot, more, 4)
        assert starts == [1 - slot]
        passed.append(may_start(occupancy, plan, slot, starts, len(passed)))
    # Slot 0 holds its share.
    assert passed == [False, False, False, True]


def test_with_fewer_target_slots_a_prompt_lands_in_one_of_them():
    """Catches filling a slot that is not to be filled, and a prompt that starts only in
    target slots, so that one of them never gets any."""
    ring = {"length": 6, "slots": 4, "rows": 40, "cap": 10, "first": 4, "outputs": [1]}
    model = Ring({**ring, "prompts": [3 * CHUNK] * 8}, leaves=False)
    model.run(6 * 50)
    assert [len(requests) for requests in model.held] == [2, 2, 2, 2, 0, 0]
