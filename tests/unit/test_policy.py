"""The filling rule. Each test names the wrong change that it would catch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_ppfix.policy import (
    derive_cap,
    plan_turn,
    stock_cap,
    target_slots,
    token_share,
)
from sglang_ppfix.policy.filling import water_level

occupancies = st.lists(st.integers(0, 12), min_size=1, max_size=16)


@st.composite
def states(draw):
    """A ring in any state that the scheduler can be in."""
    occupancy = draw(occupancies)
    live = sum(occupancy)
    return {
        "occupancy": occupancy,
        "waiting": draw(st.integers(0, 200)),
        "max_running_requests": draw(st.integers(max(live, 1), live + 100)),
        "slots": draw(st.integers(1, len(occupancy))),
        "cap": draw(st.integers(1, 40)),
    }


@given(occupancies, st.integers(0, 300))
def test_water_level_takes_exactly_what_is_poured(occupancy, poured):
    """Catches any off-by-one in the level: capacity is counted independently."""
    level, rest = water_level(occupancy, poured)

    def capacity(height):
        return sum(max(height - held, 0) for held in occupancy)

    assert capacity(level) + rest == poured
    assert capacity(level + 1) > poured


def run_lap(state, first=0):
    """All slots take what the plan lets them, and stock's rows and cap allow."""
    state = dict(state, occupancy=list(state["occupancy"]))
    occupancy = state["occupancy"]
    for turn in range(len(occupancy)):
        slot = (first + turn) % len(occupancy)
        plan = plan_turn(**state)
        held = occupancy[slot]
        taken = min(plan.shares[slot] - held, plan.admissible, state["cap"] - held)
        if taken > 0:
            occupancy[slot] += taken
            state["waiting"] -= taken
    return state


@given(states(), st.integers(0, 15))
def test_one_lap_admits_all_that_rows_and_cap_allow(state, first):
    """Catches a share that starves: after one lap nothing admissible is left, except
    where the cap that the user gave stands in the way."""
    before = sum(state["occupancy"])
    after = run_lap(state, first)
    live = sum(after["occupancy"])
    assert live - before + after["waiting"] == state["waiting"]  # none lost
    assert live <= state["max_running_requests"]
    if after["waiting"] and live < state["max_running_requests"]:
        plan = plan_turn(**after)
        for held, share in zip(after["occupancy"], plan.shares, strict=True):
            assert held >= min(share, state["cap"]) - 1


@given(states())
def test_share_is_never_above_the_even_split(state):
    """Catches a share that lets one slot run ahead: the largest micro-batch sets the
    lap, and ceil(demand / slots) is the best there is. Only what a slot holds
    already may be more."""
    plan = plan_turn(**state)
    even = -(-(plan.live + plan.admissible) // plan.slots)
    over = [held for held in state["occupancy"][: plan.slots] if held > even]
    assert max(plan.shares) <= max(even, 1) or over


@given(states())
def test_the_plan_depends_on_nothing_else(state):
    """Catches a hidden input (clock, random numbers, order of a set): ranks that see
    the same state must decide the same."""
    assert plan_turn(**state) == plan_turn(**{**state})


@given(st.integers(1, 16), st.integers(0, 64))
def test_an_empty_ring_is_filled_evenly(slots, waiting):
    """Catches greedy filling (8,8,0,0) and the tail of a rounded-up share (3,3,3,0)."""
    state = {
        "occupancy": [0] * slots,
        "waiting": waiting,
        "max_running_requests": 64,
        "slots": slots,
        "cap": 64,
    }
    after = run_lap(state)["occupancy"]
    assert sum(after) == waiting
    assert max(after) - min(after) <= 1


@pytest.mark.parametrize(
    ("occupancy", "slot", "waiting", "share"),
    [
        ([1, 0, 0, 0], 1, 7, 2),  # a burst of 8 that comes one by one: 1, then 2, 2, 2
        ([5, 0, 0, 0], 1, 1, 1),  # a full slot does not raise the others' share
        ([8, 8, 8, 8], 2, 5, 8),  # no rows: nothing to take
        ([8, 8, 7, 8], 2, 5, 8),  # one row is free, and it is this slot's
        ([8, 8, 7, 8], 0, 5, 8),  # it is not this slot's, which holds 8 already
        ([0, 0, 0, 0], 3, 2, 1),
    ],
)
def test_examples(occupancy, slot, waiting, share):
    """Catches a change of meaning that properties leave open."""
    plan = plan_turn(occupancy, waiting, 32, slots=4, cap=8)
    assert plan.shares[slot] == share


def test_slots_beyond_the_target_take_nothing_unless_the_cap_needs_them():
    """Catches an async-depth slot that is filled, and rows lost to a small cap."""
    occupancy = [0] * 16
    assert plan_turn(occupancy, 32, 64, slots=8, cap=8).shares == (4,) * 8 + (0,) * 8
    assert plan_turn(occupancy, 32, 64, slots=8, cap=2).shares == (2,) * 16
    assert plan_turn(occupancy, 32, 64, slots=8, cap=2).slots == 16


def prefill_lap(prompts, slots):
    """Prompt tokens that each slot takes in one lap, and the prompts that are left."""
    left, taken = list(prompts), [0] * slots
    for slot in range(slots):
        share = token_share(sum(left), taken)
        while left and (not taken[slot] or taken[slot] < share):
            taken[slot] += left.pop(0)
    return taken, left


@given(st.lists(st.integers(1, 9000), max_size=64), st.integers(1, 16))
def test_token_share_takes_every_prompt_within_one_lap(prompts, slots):
    """Catches prefill starved by the token share, and a share that shrinks from turn
    to turn because it forgets what the slots before took in."""
    taken, left = prefill_lap(prompts, slots)
    assert not left
    assert max(taken) <= -(-sum(prompts) // slots) + max(prompts, default=0)


def test_token_share_spreads_equal_prompts_evenly():
    """Catches 8, 6, 5, 4 in place of 8, 8, 8, 8 (seen: 6 % of a burst of 32)."""
    assert prefill_lap([8] * 32, 4)[0] == [64] * 4
    assert prefill_lap([4000, 10, 10, 10, 10, 10, 10, 10], 4)[0][0] == 4000


@pytest.mark.parametrize(
    ("pp_size", "depth", "requested", "slots"),
    [
        (4, 0, None, 4),
        (4, 2, None, 6),
        (8, 8, None, 8),
        (8, 6, None, 14),
        (8, 7, None, 8),
        (2, 2, None, 4),
        (8, 8, 8, 8),
        (4, 0, 9, 4),
        (4, 0, 2, 2),
    ],
)
def test_target_slots(pp_size, depth, requested, slots):
    """Catches filling all 16 slots of a depth of 8, or some between 8 and 14 of a depth
    of 6, which takes as long as all 14; and a request beyond the ring."""
    assert target_slots(pp_size, depth, requested) == slots


@given(st.integers(1, 4096), st.integers(1, 64))
def test_the_derived_cap_holds_every_row_and_is_the_smallest_that_does(rows, slots):
    """Catches rounding down (60 over 8 loses 4 rows) and a cap larger than needed."""
    cap = derive_cap(rows, slots)
    assert cap * slots >= rows
    assert (cap - 1) * slots < rows


def test_stock_cap_is_what_stock_takes():
    """Catches a log line that blames stock for a number it never took."""
    assert stock_cap(60, 8) == 7
    assert stock_cap(3, 8) == 1
