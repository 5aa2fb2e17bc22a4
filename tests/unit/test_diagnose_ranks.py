"""PP ranks in step: a lost line is no divergence, another batch is."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_ppfix.observe import log_ranks
from sglang_ppfix.observe.log_ranks import (
    LockStep,
    compare_digests,
    describe,
    prefill_code,
)


def fed(*ranks: list[int]) -> LockStep:
    """Ranks' codes line by line, compared at the end."""
    steps = LockStep()
    for number in range(max(map(len, ranks))):
        for rank, codes in enumerate(ranks):
            if number < len(codes):
                lines = steps.rank(rank)
                lines.codes.append(codes[number])
                lines.seconds.append(float(number))
        steps.trim()
    steps.finish()
    return steps


def sizes(count: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.randint(1, 8) for _ in range(count)]


def test_equal_ranks_agree() -> None:
    """Fails if ranks that print the same are called diverged."""
    steps = fed(*[sizes(3000)] * 4)
    assert not steps.divergences
    assert not steps.lost_lines
    assert steps.compared >= 2900


def test_a_lost_line_is_counted_and_no_divergence() -> None:
    """Fails if one line lost from the log shifts a rank for ever."""
    whole = sizes(500)
    steps = fed(whole, whole[:100] + whole[101:300] + whole[302:])
    assert not steps.divergences
    assert steps.lost_lines == 3


def test_a_log_that_starts_or_ends_in_the_middle_agrees() -> None:
    """Fails if ranks cut at other places are called diverged."""
    whole = sizes(400)
    steps = fed(whole, whole[2:], whole[:-3])
    assert not steps.divergences


def test_other_batches_diverge_for_good() -> None:
    """Fails if a rank that goes its own way is not named, with the first such line."""
    whole = sizes(300, 1)
    wrong = whole[:120] + sizes(180, 2)
    steps = fed(whole, whole, wrong)
    assert set(steps.divergences) == {2}
    found = steps.divergences[2]
    differs = next(i for i in range(120, 300) if wrong[i] != whole[i])
    assert abs(found.ordinal - differs) <= 8
    assert found.lines > 100
    assert not found.at_end


def test_a_single_other_batch_is_a_divergence() -> None:
    """Fails if a line that is there but differs passes for a lost one."""
    whole = sizes(300)
    wrong = [*whole[:200], 9, *whole[201:]]
    steps = fed(whole, wrong)
    assert steps.divergences[1].lines == 1
    assert steps.divergences[1].seen.endswith("#running-req: 9")


def test_the_last_line_may_differ() -> None:
    """Fails if a hang right at the divergence goes unseen, or is not marked as such."""
    whole = sizes(50)
    steps = fed(whole, [*whole[:-1], 9])
    assert steps.divergences[1].at_end


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails if lines of a rank are kept for ever while another is silent."""
    monkeypatch.setattr(log_ranks, "_KEEP", 1000)
    whole = sizes(5000)
    steps = fed(whole, whole[:10])
    assert all(len(lines.codes) <= 1000 for lines in steps.ranks.values())
    assert steps.unmatched
    assert not steps.divergences


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(0, 40), st.integers(1, 4))
def test_random_losses_never_diverge(seed: int, losses: int, ranks: int) -> None:
    """Fails if losses at random places, six lines apart, look like another batch."""
    rng = random.Random(seed)
    whole = [rng.randint(1, 500) for _ in range(40 * 60)]
    copies = []
    for rank in range(ranks + 1):
        places = {60 * rng.randrange(40) + 6 * rank for _ in range(losses // 4)}
        copies.append([code for i, code in enumerate(whole) if i not in places])
    assert not fed(*copies).divergences


def test_codes_tell_batches_apart() -> None:
    """Fails if two different batches share a code."""
    codes = {prefill_code(*batch) for batch in ((1, 8, 0), (8, 1, 0), (1, 8, 1))}
    assert len(codes) == 3
    assert describe(prefill_code(3, 4096, 7)) == (
        "Prefill batch, #new-seq: 3, #new-token: 4096, #running-req: 7"
    )
    assert describe(5) == "Decode batch, #running-req: 5"


def test_digests_of_the_plugin_are_compared_at_the_same_count() -> None:
    """Fails if digests over other numbers of admissions are compared."""
    same = {(0, 10): "a", (1, 10): "a", (1, 20): "b", (0, 30): "c"}
    assert not compare_digests(same)
    (found,) = compare_digests({**same, (1, 30): "d"})
    assert (found.rank, found.ordinal) == (1, 30)
