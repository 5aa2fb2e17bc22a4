"""One number of slots against another: when a trial ends, and who won. Pure."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from .rates import KEPT as MOST_RATE_BLOCKS
from .rates import LEAST_BLOCKS as LEAST_RATE_BLOCKS
from .rates import Rates
from .speeds import Difference, Speeds

#: Blocks of laps that a number of slots needs before others are held against it.
LEAST_BLOCKS = 6
#: Blocks after which a trial ends however close the two are.
ENOUGH_BLOCKS = 20
#: Less than this is no difference, and fewer slots cost less of the host.
TIE = 0.005
#: A loss of tokens per second, prompts included, that is no noise.
LOSS = 0.01
#: A trial that is slower by more than this ends at once.
MUCH_SLOWER = 0.10
#: Laps without one that counts, after which a trial is given up.
TRIAL_LAPS = 2000


class Verdict(NamedTuple):
    """How a trial ended, and why."""

    won: bool
    why: str


@dataclass(frozen=True)
class Trial:
    """``filled`` slots, which were not in force before, against ``base``.

    Attributes:
        filled, base: slots that hold requests.
        slots, base_slots: target slots that lead to it.
        began: lap.
        load: requests in flight at which laps are compared.
        base_s: seconds of a lap with ``base``.
        by_rate: judged by tokens per second alone; laps without a prompt are too rare.
    """

    filled: int
    base: int
    slots: int
    base_slots: int
    began: int
    load: int
    base_s: float
    by_rate: bool

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
        if least_s > self.base_s * (1 + MUCH_SLOWER):
            return Verdict(
                False,
                f"the devices alone take {least_s * 1e3:.1f} ms with {self.filled}, "
                f"a lap took {self.base_s * 1e3:.1f} with {self.base}",
            )
        late = lap - self.began >= TRIAL_LAPS
        # Laps without a prompt may be too rare to end what all others show.
        soon = rates.compare(self.slots, self.base_slots, LEAST_RATE_BLOCKS // 2)
        if soon is not None and soon.log_ratio - 2 * soon.error > MUCH_SLOWER:
            ratio = math.exp(-soon.log_ratio)
            return Verdict(
                False,
                f"tokens per second with {self.filled}: {ratio:.3f} of those with "
                f"{self.base}",
            )
        found = (
            soon if self.by_rate else speeds.compare(self.load, self.filled, self.base)
        )
        if found is None:
            if not late:
                return None
            return Verdict(False, "no lap with so many slots could be timed")
        ratio, error, blocks = found
        what = "a token" if self.by_rate else "the lap"
        why = (
            f"{what} with {self.filled} took {math.exp(ratio):.3f} (+-{error:.3f}) "
            f"of that with {self.base}"
        )
        if blocks >= 2 and ratio - 2 * error > MUCH_SLOWER:
            return Verdict(False, why)
        if not self._is_clear(found) and not late:
            return None
        if ratio > (TIE if self.filled < self.base else -TIE):
            return Verdict(False, why)
        if self.by_rate:
            return Verdict(True, why)
        if rates.blocks(self.slots) < LEAST_RATE_BLOCKS and not late:
            return None
        rate = rates.compare(self.slots, self.base_slots)
        if rate is None:
            return Verdict(True, why)
        why += f", tokens per second {math.exp(-rate.log_ratio):.3f} of it"
        return Verdict(rate.log_ratio <= LOSS, why)

    def _is_clear(self, found: Difference) -> bool:
        least, enough = LEAST_BLOCKS, ENOUGH_BLOCKS
        if self.by_rate:
            least, enough = LEAST_RATE_BLOCKS, MOST_RATE_BLOCKS
        clear = abs(found.log_ratio) > max(3 * found.error, 4 * TIE)
        return found.blocks >= enough or (found.blocks >= least and clear)
