"""One number of slots against another: when a trial ends, and who won. Pure."""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from .rates import ENOUGH_BLOCKS as ENOUGH_RATE_BLOCKS
from .rates import LEAST_BLOCKS as LEAST_RATE_BLOCKS
from .rates import Rates
from .speeds import Difference, Speeds

#: Blocks of laps that a number of slots needs before others are held against it.
LEAST_BLOCKS = 12
#: Blocks after which a trial ends however close the two are.
ENOUGH_BLOCKS = 40
#: Less than this is no difference, and fewer slots cost less of the host.
TIE = 0.005
#: A loss of tokens per second, prompts included, that is no noise.
LOSS = 0.01
#: A gain of less than this may be the machine that drifts: it is measured both ways.
CLOSE = 0.06
#: A trial that is slower by more than this ends at once.
MUCH_SLOWER = 0.10
#: Laps without one that counts, after which a trial is given up.
TRIAL_LAPS = 2000


class Found(NamedTuple):
    """Logarithms of the ratio of ``filled`` to ``base``; below 0 it is faster.

    Attributes:
        lap: of the time of a lap of decodes, or of a token.
        token: of the time of a token, prompts included; None while not known.
    """

    lap: float
    token: float | None


class Verdict(NamedTuple):
    """How a trial ended.

    Attributes:
        won: whether ``filled`` slots are kept.
        why: for the log.
        close: what was found, if it has to be found the other way, too.
        learned: whether it says that ``base`` is better.
    """

    won: bool
    why: str
    close: Found | None = None
    learned: bool = True


@dataclass(frozen=True)
class Trial:
    """``filled`` slots, which were not in force before, against ``base``.

    Attributes:
        filled, base: slots that hold requests.
        slots, base_slots: target slots that lead to it.
        began: lap; ``decodes``: laps of decodes until then.
        load: requests in flight at which laps are compared; ``bucket``: of the load.
        base_s: seconds of a lap with ``base``.
        by_rate: judged by tokens per second alone; laps without a prompt are too rare.
        first: what was found the other way around, ``base`` having been tried.
    """

    filled: int
    base: int
    slots: int
    base_slots: int
    began: int
    decodes: int
    load: int
    bucket: int
    base_s: float
    by_rate: bool
    first: Found | None = None

    def judge(
        self, lap: int, least_s: float, speeds: Speeds, rates: Rates
    ) -> Verdict | None:
        """The outcome, as soon as there is one.

        Args:
            lap: laps so far.
            least_s: what the devices alone take for a lap with ``filled`` slots.
            speeds: laps of decodes.
            rates: tokens per second.
        """
        if self.is_much(least_s):
            return Verdict(
                False,
                f"the devices alone take {least_s * 1e3:.1f} ms with {self.filled}, "
                f"a lap took {self.base_s * 1e3:.1f} with {self.base}",
            )
        late = lap - self.began >= TRIAL_LAPS
        # Laps without a prompt may be too rare to end what all others show.
        rate = rates.compare(self.slots, self.base_slots, LEAST_RATE_BLOCKS // 2)
        if rate is not None and rate.log_ratio - 2 * rate.error > MUCH_SLOWER:
            return Verdict(False, self._says("a token", rate))
        last = speeds.count - self.decodes
        laps = speeds.compare(self.load, self.filled, self.base, last)
        found = rate if self.by_rate else laps
        what = "a token" if self.by_rate else "the lap"
        if found is not None:
            much = found.log_ratio - 2 * found.error > MUCH_SLOWER
            if found.blocks >= 4 and much and not self._may_gain(rate, rates):
                return Verdict(False, self._says(what, found))
            if self._is_clear(found) and self._is_known(rate):
                return self._decide(found, rate, self._says(what, found))
        if late:
            return Verdict(False, "too few laps with so many slots could be timed")
        if rates.blocks(self.slots) >= 2 * ENOUGH_RATE_BLOCKS:
            return Verdict(False, "the load was another all the time", learned=False)
        return None

    def other_way(
        self, began: int, decodes: int, base_s: float, found: Found
    ) -> "Trial":
        """``base`` against ``filled``, after ``found`` was."""
        return replace(
            self,
            filled=self.base,
            base=self.filled,
            slots=self.base_slots,
            base_slots=self.slots,
            began=began,
            decodes=decodes,
            base_s=base_s,
            first=found,
        )

    def is_much(self, seconds: float) -> bool:
        """Whether a lap of so many seconds ends the trial."""
        return seconds > self.base_s * (1 + MUCH_SLOWER)

    def _may_gain(self, rate: Difference | None, rates: Rates) -> bool:
        """Whether laps with prompts may make good what laps without are slower."""
        if self.by_rate:
            return False
        if rate is not None:
            return rate.log_ratio < 0
        return rates.lap(self.base_slots)[1] > self.base_s * (1 + MUCH_SLOWER)

    def _decide(self, found: Difference, rate: Difference | None, why: str) -> Verdict:
        token = None if rate is None else rate.log_ratio
        if token is not None and not self.by_rate:
            why += f", tokens per second {math.exp(-token):.3f} of it"
        if self.first is None:
            seen = Found(found.log_ratio, token)
            won = _wins(seen, self.filled < self.base)
            close = won and max(found.log_ratio, token or -1.0) > -CLOSE
            return Verdict(won, why, seen if close else None)
        # From the side of ``base``, which was tried first: drift cancels.
        seen = Found(
            (self.first.lap - found.log_ratio) / 2,
            None
            if token is None or self.first.token is None
            else (self.first.token - token) / 2,
        )
        why += f", both ways {math.exp(-seen.lap):.3f}"
        return Verdict(not _wins(seen, self.base < self.filled), why)

    def _says(self, what: str, found: Difference) -> str:
        return (
            f"{what} with {self.filled} took {math.exp(found.log_ratio):.3f} "
            f"(+-{found.error:.3f}) of that with {self.base}"
        )

    def _is_clear(self, found: Difference) -> bool:
        least, enough = LEAST_BLOCKS, ENOUGH_BLOCKS
        if self.by_rate:
            least, enough = LEAST_RATE_BLOCKS, ENOUGH_RATE_BLOCKS
        clear = abs(found.log_ratio) > max(3 * found.error, 4 * TIE)
        return found.blocks >= enough or (found.blocks >= least and clear)

    def _is_known(self, rate: Difference | None) -> bool:
        """Whether tokens per second speak clearly, or as well as they will."""
        if rate is None or rate.blocks < LEAST_RATE_BLOCKS:
            return False
        clear = abs(rate.log_ratio - LOSS) > 2 * rate.error
        return clear or rate.blocks >= ENOUGH_RATE_BLOCKS


def _wins(found: Found, fewer: bool) -> bool:
    if found.token is not None and found.token < -CLOSE:
        return True  # whatever laps without prompts say: it is what clients see
    if found.lap > (TIE if fewer else -TIE):
        return False
    return found.token is None or found.token <= LOSS
