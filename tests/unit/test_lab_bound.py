"""The law's bound: by hand for the cases of the documentation, and its properties."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_ppfix.lab.bound import bound_tok_s, even_sizes, lap_ms
from sglang_ppfix.lab.profile_file import stage_profile

STEEP = stage_profile("20+10b", 4)
FLAT = stage_profile("40", 4)


def decode_lap(profile, sizes) -> float:
    return lap_ms(profile, sizes, lambda stage, size: stage.decode(size))


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([8], 400),  # one full slot: latency counts
        ([2, 2, 2, 2], 160),
        ([1], 120),
        ([4, 1], 240),  # only the largest counts while slots are few
        ([2] * 5, 200),  # more slots than stages: occupancy counts
    ],
)
def test_laps_by_hand(sizes: list[int], expected: float) -> None:
    """The two sides of the law's maximum, each where it decides."""
    assert decode_lap(STEEP, sizes) == pytest.approx(expected)


def test_hops_and_a_slow_stage() -> None:
    """A slow stage is a bottleneck of full slots only; hops lengthen empty rings."""
    profile = stage_profile("40", 4, hop_ms=5, factors=(1, 1, 1, 2))
    assert decode_lap(profile, [1]) == pytest.approx(200 + 20)
    assert decode_lap(profile, [1] * 4) == pytest.approx(320)


def test_the_bound_of_the_documented_case() -> None:
    """PP4, t(b) = 20+10b, 8 clients, 16 and 40 tokens: 50.0 tok/s."""
    seconds = (4 * 39.6 + 39 * 160) / 1e3
    assert bound_tok_s(STEEP, 8, 4, 32, 16, 40) == pytest.approx(8 * 40 / seconds)


def test_clients_beyond_the_rows_wait() -> None:
    """Counting waiting clients as running would promise too much."""
    assert bound_tok_s(STEEP, 64, 4, 32, 16, 40) == bound_tok_s(
        STEEP, 32, 4, 32, 16, 40
    )


@given(st.integers(1, 64), st.integers(1, 16))
def test_even_sizes_are_even_and_lose_nobody(requests: int, slots: int) -> None:
    """A remainder dropped, or put into one slot, would fail here."""
    sizes = even_sizes(requests, slots)
    assert sum(sizes) == requests
    assert len(sizes) <= slots
    assert max(sizes) - min(sizes) <= 1


@given(st.integers(1, 64), st.integers(1, 12), st.sampled_from([STEEP, FLAT]))
def test_more_slots_never_lower_the_bound(requests: int, slots: int, profile) -> None:
    """A bound that forced all slots to be filled would fall with async depth."""
    fewer = bound_tok_s(profile, requests, slots, 64, 16, 40)
    assert bound_tok_s(profile, requests, slots + 1, 64, 16, 40) >= fewer - 1e-9
