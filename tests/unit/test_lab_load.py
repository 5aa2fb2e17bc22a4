"""Loads: seeded, as long as asked for, refused when they cannot be."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_ppfix.lab.errors import LabError
from sglang_ppfix.lab.load import (
    Lengths,
    Load,
    PlannedRequest,
    RequestResult,
    plan_load,
    throughput,
)

FIXED = Lengths(8, 8)


def test_a_seed_gives_the_same_load_whatever_its_ids() -> None:
    """Arms and repeats differ in request ids only; else outputs could not compare."""
    first, again, other = (
        plan_load("poisson", 8, Lengths(1, 50), FIXED, seed, rate_per_s=4)
        for seed in (3, 3, 4)
    )

    def content(load: Load) -> list[object]:
        return [(r.prompt, r.output_tokens, r.arrive_s) for r in load.requests]

    assert content(first) == content(again) != content(other)
    ids = {r.rid for load in (first, again) for r in load.requests}
    assert len(ids) == 16


@given(st.integers(1, 60), st.integers(0, 60), st.integers(0, 10**6))
def test_uniform_lengths_stay_inside(low: int, more: int, seed: int) -> None:
    """A request longer than its limit may not fit the KV pool."""
    lengths = Lengths.parse(f"{low}-{low + more}", "--output-tokens")
    assert low <= lengths.draw(random.Random(seed)) <= low + more


def test_exponential_lengths_have_their_mean_and_a_limit() -> None:
    """A wrong rate (1/mean swapped) would be off by orders of magnitude."""
    lengths = Lengths.parse("exp:40", "--output-tokens")
    rng = random.Random(0)
    drawn = [lengths.draw(rng) for _ in range(4000)]
    assert 37 < sum(drawn) / len(drawn) < 43
    assert min(drawn) >= 1
    assert max(drawn) <= lengths.high


@pytest.mark.parametrize("text", ["", "0", "5-3", "exp:0", "exp:3-5", "-4", "4.5", "x"])
def test_bad_lengths_name_setting_and_value(text: str) -> None:
    """Accepting nonsense, or an error without the value, would fail here."""
    with pytest.raises(LabError) as error:
        Lengths.parse(text, "--prompt-tokens")
    assert "--prompt-tokens" in str(error.value)
    assert repr(text) in str(error.value)


def test_a_load_that_cannot_be_is_refused() -> None:
    """Silently sending something else would give figures of another experiment."""
    with pytest.raises(LabError, match="rate"):
        plan_load("poisson", 4, FIXED, FIXED, 0)
    requests = tuple(PlannedRequest(rid, (5,), 4) for rid in ("a1", "b", "a10"))
    with pytest.raises(LabError, match="'a10': begins with another one, 'a1'"):
        Load("closed", 2, requests)
    with pytest.raises(LabError, match="0 requests"):
        Load("closed", 4, ())
    hang_up = PlannedRequest("0", (5,), 4, abort_after_s=1.0)
    with pytest.raises(LabError, match="one call"):
        Load("burst", 1, (hang_up,))
    extra = (
        PlannedRequest("0", (5,), 4),
        PlannedRequest("1", (5,), 4, extra={"priority": 3}),
    )
    with pytest.raises(LabError, match="same extra"):
        Load("burst", 2, extra)


def test_throughput_counts_from_first_sent_to_last_finished() -> None:
    """Summing the requests' own rates would be far higher."""
    results = [
        RequestResult(PlannedRequest("a", (5,), 4), sent=10.0, finished=12.0),
        RequestResult(PlannedRequest("b", (5,), 4), sent=11.0, finished=14.0),
    ]
    for result in results:
        result.output = [5, 6, 7, 8]
    assert throughput(results) == pytest.approx(2.0)
