"""Choosing the number of slots: the law, on stages whose best number is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_ppfix.policy import (
    StageTime,
    choose_slots,
    fit_stage_time,
    host_bound,
    predict_lap,
)


def stages(base, slope, host=0.0, count=4, largest=64):
    """Equal stages, in ms."""
    return [StageTime(base, slope, host, largest)] * count


@pytest.mark.parametrize(
    ("base", "slope", "host", "demand", "slots"),
    [
        (20, 10, 5, 8, 4),  # steep: every stage busy
        (20, 10, 5, 2, 2),  # no more slots than requests
        (40, 0, 5, 32, 1),  # flat: spreading buys nothing
        (2, 0, 6, 32, 1),  # bound by the host
        (20, 10, 0, 1, 1),
    ],
)
def test_as_many_slots_as_help(base, slope, host, demand, slots):
    """Catches spreading where it buys nothing, and greed where it costs."""
    assert choose_slots(stages(base, slope, host), demand, 4).slots == slots


def test_a_slow_stage_needs_fewer_slots():
    """Catches a choice by the mean stage: three slots keep the slowest one busy."""
    slow = StageTime(60, 0.5, 0, 64)
    ring = [*stages(10, 0.1, count=3), slow]
    assert choose_slots(ring, 16, 4).slots < 4
    assert choose_slots(ring, 16, 4).laps[4] == pytest.approx(4 * 62)


def test_an_unknown_slope_spreads():
    """Catches a choice out of one measured size: spreading is what shows the slope."""
    assert fit_stage_time({8: 40.0}) is None
    assert choose_slots([None, *stages(40, 0, count=3)], 8, 4) == (4, {})


def test_no_prediction_far_beyond_what_was_measured():
    """Catches 32 requests in one slot because 1 and 2 took the same time."""
    assert min(choose_slots(stages(40, 0, largest=8), 32, 4).laps) == 2


def test_noise_is_not_a_slope():
    """Catches 1 % of jitter that becomes 20 % at the next size."""
    assert fit_stage_time({1: 40.0, 2: 40.4}).slope == 0
    assert fit_stage_time({1: 30.0, 8: 100.0}).slope == pytest.approx(10)


def test_a_lap_that_the_devices_do_not_explain_is_the_hosts():
    """Catches 16 requests left in four slots of 2 ms whose lap takes 46 ms of CPU
    (seen on two cores: a third of stock's throughput)."""
    times = [{4: 2.0}] * 4
    stages = host_bound(times, size=4, slots=4, lap_ms=46.0)
    assert choose_slots(stages, 16, 4).slots == 2  # 8 is as far as 4 reaches
    assert host_bound(times, size=4, slots=4, lap_ms=10.0) is None
    assert host_bound(times, size=8, slots=4, lap_ms=46.0) is None


@given(
    st.lists(
        st.tuples(st.floats(0.1, 100), st.floats(0, 20), st.floats(0, 20)),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 64),
    st.floats(0, 50),
)
def test_the_choice_is_as_good_as_any(times, demand, latency):
    """Catches a choice that costs more than its tolerance."""
    ring = [StageTime(*time, largest=64) for time in times]
    choice = choose_slots(ring, demand, len(ring), latency)
    best = min(predict_lap(ring, demand, s, latency) for s in range(1, len(ring) + 1))
    assert predict_lap(ring, demand, choice.slots, latency) <= best * 1.02 * (1 + 1e-9)
