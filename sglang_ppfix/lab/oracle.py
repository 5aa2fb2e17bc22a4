"""What the toy model must answer: every token, recomputed from the prompt alone."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from . import token_rule

_TIE = 1e-4


class History:
    """Tokens of a request so far, and the sum that all ranks make of them."""

    def __init__(self, prompt: Sequence[int], pp_size: int) -> None:
        self._weight = sum(token_rule.rank_weight(rank) for rank in range(pp_size))
        self._length = 0
        self._entries = 0
        self.last = 0
        for token in prompt:
            self.append(token)

    def append(self, token: int) -> None:
        """Add the next token."""
        self._entries += token_rule.entry(token, self._length)
        self._length += 1
        self.last = token

    def logits(self) -> dict[int, float]:
        """Candidates for the next token, best first."""
        total = self._entries * self._weight
        return {
            token_rule.candidate(total, self.last, k): token_rule.TOP_LOGIT
            - k * token_rule.LOGIT_STEP
            for k in range(token_rule.CANDIDATES)
        }


def expected_tokens(prompt: Sequence[int], count: int, pp_size: int) -> list[int]:
    """The ``count`` tokens that a greedy request without penalties must get."""
    history = History(prompt, pp_size)
    tokens: list[int] = []
    for _ in range(count):
        tokens.append(next(iter(history.logits())))
        history.append(tokens[-1])
    return tokens


def check_output(
    prompt: Sequence[int],
    output: Sequence[int],
    pp_size: int,
    sampling: Mapping[str, Any],
) -> str | None:
    """Say what is wrong with ``output``, or ``None``.

    Greedy outputs are checked token by token, frequency and presence penalties
    included; a sampled token must be one of the candidates after its own history.

    Args:
        prompt: token ids sent.
        output: token ids received; may be shorter than asked for (an abort).
        pp_size: number of stages that computed them.
        sampling: SGLang's sampling parameters of the request.
    """
    greedy = sampling.get("temperature", 1.0) == 0
    frequency = sampling.get("frequency_penalty", 0.0)
    presence = sampling.get("presence_penalty", 0.0)
    history, said = History(prompt, pp_size), Counter[int]()
    for step, token in enumerate(output):
        logits = history.logits()
        if token not in logits:
            return f"token {step} is {token}, not one of {sorted(logits)}"
        if greedy:
            for other, times in said.items():
                if other in logits:
                    logits[other] -= frequency * times + presence
            best = max(logits, key=lambda candidate: logits[candidate])
            if logits[best] - logits[token] > _TIE:
                return f"token {step} is {token}, expected {best}"
        said[token] += 1
        history.append(token)
    return None
