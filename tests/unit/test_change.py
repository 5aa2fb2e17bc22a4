"""The runtime switch's words and codes."""

import pytest

from sglang_ppfix.hooks.change import Change, ChangeError, from_codes, from_words
from sglang_ppfix.settings import LogLevel, Policy


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("log", list(LogLevel))
def test_words_arrive_as_meant(policy, log):
    """Catches a code that means another policy on the other side."""
    codes = from_words({"policy": policy.value, "slots": "3", "log": log.value})
    assert all(isinstance(code, int) for code in codes.values())
    assert from_codes(codes, ring_length=4) == Change(policy, 3, log)


def test_slots_auto_lets_the_plugin_choose():
    """Catches "auto" taken for a number of slots."""
    assert from_codes(from_words({"slots": "auto"}), 4) == Change(slots=0)


@pytest.mark.parametrize(
    "words", [{"policy": "fair"}, {"slots": "-1"}, {"log": "loud"}, {"cap": "3"}]
)
def test_unknown_words(words):
    """Catches a word that is passed on or dropped."""
    (word,) = words
    with pytest.raises(ChangeError, match=f"{word}.*allowed"):
        from_words(words)


@pytest.mark.parametrize(
    "codes",
    [
        {"ppfix_policy": 99},
        {"ppfix_policy": "balanced"},
        {"ppfix_slots": 5},
        {"ppfix_slots": 1.5},
        {"ppfix_log": None},
        {"ppfix_cap": 1},
    ],
)
def test_unknown_codes_are_refused_in_one_line(codes):
    """Catches a change that one rank applies and another cannot read."""
    with pytest.raises(ChangeError, match="allowed") as error:
        from_codes(codes, ring_length=4)
    assert "\n" not in str(error.value)
