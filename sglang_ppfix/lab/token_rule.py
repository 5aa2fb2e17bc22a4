"""Which token the toy model says next. Plain arithmetic on ints or numpy arrays.

The model (on every rank, from its KV store) and the oracle (from the token list) both
use it, so a wrong row, slot, position or length on any rank changes the output.
"""

from typing import Any

VOCAB_SIZE = 512
BOS, EOS = 1, 2
FIRST_TOKEN, LAST_TOKEN = 5, VOCAB_SIZE - 6
"""Range of tokens that prompts hold and the model says; EOS lies outside."""

CANDIDATES = 8
"""Tokens with a finite logit; more than one, so that sampling and penalties matter."""

TOP_LOGIT, LOGIT_STEP, NO_LOGIT = 4.0, 0.3, -60.0


def entry(token: Any, position: Any) -> Any:
    """What a rank keeps in the KV slot of ``token`` at ``position``.

    A product, so that two tokens that swap places change the sum of a history.
    """
    return (token * 31 + 7) * (position * 17 + 13) % 10007


def rank_weight(pp_rank: int) -> int:
    """Weight of a rank's sum, so that ranks cannot stand in for each other."""
    return pp_rank + 1


def candidate(total: Any, last_token: Any, k: int) -> Any:
    """The ``k``-th best next token.

    Args:
        total: sum over ranks of ``rank_weight`` times the sum of the history's entries.
        last_token: last token of the history.
        k: 0 to ``CANDIDATES - 1``; distinct ``k`` give distinct tokens.
    """
    span = LAST_TOKEN - FIRST_TOKEN + 1
    return ((total + 3 * last_token) * 31 + k * 61) % span + FIRST_TOKEN
