"""What a setting is worth, by the goal that the user has."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from .presets import Reading
from .sweep import Case, row_of

# A gain below this is no reason to set anything.
PAYS = 0.01


@dataclass(frozen=True)
class Figures:
    """What one run came to.

    Attributes:
        tok_s: output tokens per second of all requests.
        tpot_ms: milliseconds per output token of a request after its first, prompts of
            others in between included, its own wait and prompt not. 0 where no request
            says more than one token.
    """

    tok_s: float
    tpot_ms: float

    def merit(self, goal: str) -> float:
        """Tokens per second, of all requests or of each: more is better."""
        if goal == "throughput":
            return self.tok_s
        return 1e3 / max(self.tpot_ms, 1e-9)


#: Of what was not run.
NOTHING = Figures(0.0, 0.0)


@dataclass(frozen=True)
class Choice:
    """One setting and its worth.

    Attributes:
        what: the setting in words.
        setting: as it is given to SGLang; empty for nothing to set.
        tok_s: predicted with this and all choices before it.
        low: the same at the slow end of the uncertainty.
        high: at the fast end.
        tpot_ms: predicted time per token.
        gain: over the choices before it, as a part: 0.1 is 10 % more tokens per second,
            of all requests or (goal ``latency``) of each.
        gain_low: smallest gain over all readings and bounds.
        gain_high: largest.
    """

    what: str
    setting: str
    tok_s: float
    low: float
    high: float
    tpot_ms: float
    gain: float | None
    gain_low: float | None
    gain_high: float | None

    @property
    def useless(self) -> bool:
        """Whether it gains nothing under any reading."""
        return self.gain_high is None or self.gain_high < PAYS

    @property
    def sure(self) -> bool:
        """Whether it gains something, and costs nothing under any reading."""
        if self.useless or self.gain is None or self.gain_low is None:
            return False
        return self.gain >= 0 and self.gain_low > -PAYS


def figures_of(case: Case) -> list[Figures]:
    """The central figures first, then those of every other reading and bound."""
    rows = (row_of(replace(case, readings=(r,))) for r in _all_bounds(case.readings))
    return [Figures(row["tok_s"], row["tpot_ms"] or 0.0) for row in rows]


def choice_of(
    what: str,
    setting: str,
    goal: str,
    now: Sequence[Figures],
    before: Sequence[Figures] = (),
) -> Choice:
    """A choice out of its figures; those before are compared like with like."""
    gains = [
        round(one.merit(goal) / then.merit(goal) - 1, 4)
        for one, then in zip(now, before, strict=False)
    ]
    return Choice(
        what,
        setting,
        now[0].tok_s,
        min(one.tok_s for one in now),
        max(one.tok_s for one in now),
        now[0].tpot_ms,
        *((gains[0], min(gains), max(gains)) if gains else (None, None, None)),
    )


def _all_bounds(readings: tuple[Reading, ...]) -> Iterator[Reading]:
    first = readings[0]
    yield replace(first, profile=replace(first.profile, spread=0.0))
    yield from readings[1:]
    if first.profile.spread:
        for profile in first.profile.bounds():
            yield replace(first, profile=replace(profile, spread=0.0))
