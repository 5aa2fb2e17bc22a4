"""How many requests were in flight in each window of a log, and how it is known.

The log never says it. In order of trust: the plugin's own lines; requests admitted
minus answers sent (HTTP lines, when answers are not streamed); the KV balance, which
says how many admitted requests have given their tokens back.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from .log_windows import Window


class Source(Enum):
    """Where a number of requests in flight comes from, with its confidence."""

    PLUGIN = "the plugin's own lines (occupancy of every slot)"
    LIVE = "token rate times time per token, measured on the live server"
    ANSWERS = "requests admitted minus HTTP answers sent"
    BURST = "requests admitted while nothing had finished (KV tokens add up)"
    BALANCE = "requests admitted minus KV tokens given back"
    CLIENTS = "the number of clients given, minus the queue"
    QUEUE = "a queue that never empties: every row or place is taken"
    ONES = "one request a slot: the mean micro-batch is 1"
    TOKENS = "KV tokens held, over the length of a request"

    @property
    def confidence(self) -> float:
        """How far to trust it, 0 to 1."""
        return _CONFIDENCE[self]


_CONFIDENCE = {
    Source.PLUGIN: 0.98,
    Source.LIVE: 0.9,
    Source.ANSWERS: 0.95,
    Source.BURST: 0.9,
    Source.BALANCE: 0.7,
    Source.CLIENTS: 0.85,
    Source.QUEUE: 0.8,
    Source.ONES: 0.6,
    Source.TOKENS: 0.4,
}


#: Answers per request that must have ended, so that answers can be counted.
_LEAST_ANSWERED = 0.7


@dataclass(frozen=True)
class InFlight:
    """Requests in flight in one window."""

    number: float
    source: Source


def in_flight(
    windows: Sequence[Window], prompt_tokens: float, answers_count: bool
) -> list[InFlight | None]:
    """Requests in flight per window; None where the log does not tell.

    Args:
        windows: windows of one pipeline, oldest first.
        prompt_tokens: mean prompt length, for the KV balance.
        answers_count: whether HTTP answers belong to this pipeline alone.
    """
    answered = answers_count and _answers_fit(windows)
    balances = _balances(windows, prompt_tokens)
    found: list[InFlight | None] = []
    for window in windows:
        if window.slots is not None and _slots_fit(window):
            found.append(InFlight(sum(window.slots), Source.PLUGIN))
        elif window.episode < 0:
            found.append(None)
        elif answered:
            number = window.admitted - window.finished
            found.append(InFlight(number, Source.ANSWERS))
        elif window.seats is not None:
            found.append(InFlight(window.admitted, Source.BURST))
        elif window.episode in balances:
            length, scale = balances[window.episode]
            left = scale * (window.admitted - window.freed / length)
            found.append(InFlight(max(left, 1.0), Source.BALANCE))
        else:
            found.append(None)
    return found


def _slots_fit(window: Window) -> bool:
    """The plugin's line may be old; believe it while it fits the slot logged."""
    return window.slots is not None and any(
        abs(size - logged) <= 1 for size in window.slots for logged in window.logged
    )


def _answers_fit(windows: Sequence[Window]) -> bool:
    """Whether an answer is sent for each request, when it ends.

    Streamed answers are logged when they begin, and a call with many prompts is one
    answer: then the lines do not count what has ended.
    """
    counted = [w for w in windows if w.episode >= 0]
    if not any(w.finished for w in counted):
        return False
    too_early = sum(w.admitted - w.finished < min(w.logged) for w in counted)
    if too_early > 0.1 * len(counted):
        return False
    ended = answered = 0.0
    for _, mine in _episodes(counted):
        burst = max((sum(w.seats) for w in mine if w.seats is not None), default=0)
        last = max(mine, key=lambda w: w.admitted)
        if burst and last.admitted > burst:
            ended += last.admitted - burst
            answered += last.finished
    return answered >= _LEAST_ANSWERED * ended


def _episodes(windows: Sequence[Window]) -> list[tuple[int, list[Window]]]:
    episodes: dict[int, list[Window]] = {}
    for window in windows:
        if window.episode >= 0:
            episodes.setdefault(window.episode, []).append(window)
    return list(episodes.items())


#: A steady load reads up to this much too high in the balance: see ``_balances``.
_LENGTH_BIAS = (0.95, 1.4)


def _balances(
    windows: Sequence[Window], prompt_tokens: float
) -> dict[int, tuple[float, float]]:
    """Tokens of a whole request and a scale, by episode, where the balance has them.

    While nothing finishes, ``freed`` stays at 0; from then on it grows by the tokens
    of a request for each one admitted in its place. Requests in flight are longer than
    the mean (long ones stay longer), so the balance reads ``1 + cv^2`` too high; a
    reading that stays close above the burst is taken as the burst's own number.
    """
    balances: dict[int, tuple[float, float]] = {}
    for episode, mine in _episodes(windows):
        burst = max((w.admitted for w in mine if w.seats is not None), default=0)
        last = max(mine, key=lambda w: w.admitted)
        if not burst or last.admitted < 1.5 * burst:
            continue
        if any(w.retracted for w in mine):
            continue  # what they give back they prefill again
        length = last.freed / (last.admitted - burst)
        if length <= prompt_tokens:
            continue
        later = [w for w in mine if w.seats is None]
        reading = statistics.median(w.admitted - w.freed / length for w in later)
        ratio = reading / burst
        steady = _LENGTH_BIAS[0] <= ratio <= _LENGTH_BIAS[1]
        balances[episode] = length, 1.0 / ratio if steady else 1.0
    return balances
