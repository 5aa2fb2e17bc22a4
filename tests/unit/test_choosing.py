"""What the devices allow: bounds on stages whose times are known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_ppfix.policy import least_lap, least_time
from sglang_ppfix.policy.choosing import is_foretold


def test_between_measured_sizes_time_is_on_the_line():
    """Catches a bound above a concave curve, which would forbid what wins."""
    assert least_time({2: 10.0, 4: 20.0}, 3) == pytest.approx(15.0)


def test_below_the_smallest_time_falls_at_most_in_proportion():
    """Catches a steep stage kept in one slot because one size was ever seen."""
    assert least_time({8: 40.0}, 2) == pytest.approx(10.0)


def test_beyond_the_largest_half_of_the_growth_is_assumed():
    """Catches a flat guess: a steep stage would be tried in ever fewer slots."""
    assert least_time({1: 30.0, 2: 40.0}, 4) == pytest.approx(50.0)
    assert least_time({8: 40.0}, 16) == pytest.approx(40.0)


def test_noise_is_no_growth():
    """Catches 1 % of jitter that becomes 20 % at the next size."""
    assert least_time({1: 40.0, 2: 40.4}, 32) == pytest.approx(40.4)


def test_the_busiest_stage_bounds_the_lap():
    """Catches a bound by the mean stage, or one that forgets the way through all."""
    slow, fast = {4: 60.0}, {4: 10.0}
    assert least_lap([fast, slow, fast, fast], 16, 4) == pytest.approx(240.0)
    assert least_lap([fast] * 4, 4, 1) == pytest.approx(40.0)


def test_nothing_is_foretold_far_beyond_what_was_measured():
    """Catches 32 requests in one slot because 1 and 2 took the same time."""
    assert is_foretold([{8: 40.0}] * 4, 32, 2, 100.0)
    assert not is_foretold([{8: 40.0}] * 4, 32, 1, 100.0)
    assert not is_foretold([{8: 40.0}, {}], 8, 1, 100.0)


@given(
    st.floats(0.1, 100),
    st.floats(0, 20),
    st.floats(0.3, 1.0),
    st.sets(st.integers(1, 64), min_size=1),
    st.integers(1, 64),
)
def test_it_is_a_bound(base, slope, power, seen, size):
    """Times that rise and flatten, as those of experts do, are never below it."""

    def time(count):
        return base + slope * count**power

    known = {count: time(count) for count in seen}
    if size > max(seen) and power == 1:
        return
    least = least_time(known, size)
    inside = size <= max(seen)
    # Beyond, half of the mean growth is a guess, and may be too much.
    assert not inside or least <= time(size) * (1 + 1e-9)
    assert least >= 0
