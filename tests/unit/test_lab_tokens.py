"""The token rule and its oracle: a wrong token, history or rank cannot hide."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_ppfix.lab import token_rule
from sglang_ppfix.lab.oracle import History, check_output, expected_tokens

GREEDY = {"temperature": 0}
tokens = st.integers(token_rule.FIRST_TOKEN, token_rule.LAST_TOKEN)
prompts = st.lists(tokens, min_size=1, max_size=40)


@given(st.integers(0, 10**9), tokens)
def test_candidates_differ_and_are_never_special(total: int, last: int) -> None:
    """EOS among them would end requests; doubles would make sampling ambiguous."""
    found = [token_rule.candidate(total, last, k) for k in range(token_rule.CANDIDATES)]
    assert len(set(found)) == token_rule.CANDIDATES
    assert all(token_rule.FIRST_TOKEN <= t <= token_rule.LAST_TOKEN for t in found)
    assert token_rule.EOS not in found


@given(prompts, st.integers(1, 8))
def test_the_oracle_accepts_what_it_expects(prompt: list[int], pp_size: int) -> None:
    """The two ways of the oracle must agree."""
    output = expected_tokens(prompt, 12, pp_size)
    assert check_output(prompt, output, pp_size, GREEDY) is None


@given(prompts, st.integers(0, 11), st.integers(1, 400))
def test_one_changed_token_is_found(prompt: list[int], at: int, by: int) -> None:
    """An oracle that looked at the last token only would miss most changes."""
    output = expected_tokens(prompt, 12, 4)
    span = token_rule.LAST_TOKEN - token_rule.FIRST_TOKEN + 1
    output[at] = (output[at] - token_rule.FIRST_TOKEN + by) % span + 5
    objection = check_output(prompt, output, 4, GREEDY)
    assert objection is not None
    assert objection.startswith(f"token {at} ")


def test_every_rank_and_every_position_counts() -> None:
    """Two ranks that swap their sums, or two tokens that swap places, must show."""
    assert len({token_rule.rank_weight(rank) for rank in range(8)}) == 8
    prompt = [10, 11, 12, 13, 14]
    swapped = [11, 10, 12, 13, 14]
    assert expected_tokens(prompt, 8, 4) != expected_tokens(swapped, 8, 4)
    assert expected_tokens(prompt, 8, 4) != expected_tokens(prompt, 8, 3)


def test_penalties_change_the_expected_token() -> None:
    """An oracle without penalties would call SGLang's right output wrong."""
    prompt = [7, 8, 9]
    history = History(prompt, 2)
    best, second = list(history.logits())[:2]
    assert check_output(prompt, [best], 2, GREEDY) is None
    assert check_output(prompt, [second], 2, GREEDY) is not None
    # A first token cannot be penalised: nothing was said yet.
    penal = {"temperature": 0, "frequency_penalty": 2.0, "presence_penalty": 2.0}
    assert check_output(prompt, [second], 2, penal) is not None


def test_a_sampled_token_must_be_a_candidate() -> None:
    """Accepting anything at temperature 1 would hide a wrong history."""
    prompt = [7, 8, 9]
    candidates = list(History(prompt, 2).logits())
    assert check_output(prompt, [candidates[-1]], 2, {"temperature": 1.0}) is None
    other = next(t for t in range(5, 500) if t not in candidates)
    assert check_output(prompt, [other], 2, {"temperature": 1.0}) is not None


@pytest.mark.parametrize("length", [0, 3])
def test_an_aborted_output_may_be_short(length: int) -> None:
    """What came before an abort is still checked, and a short output is no fault."""
    output = expected_tokens([7, 8], 8, 2)[:length]
    assert check_output([7, 8], output, 2, GREEDY) is None
