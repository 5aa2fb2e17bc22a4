"""The number of slots that is fastest, found by trying what the devices allow. Pure.

Runs on PP rank 0 alone, because it needs a clock; all other rules of this package
decide on every rank by themselves.
"""

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .choosing import is_known, least_lap
from .rates import Rates
from .speeds import Speeds

#: Laps over which the largest number of requests counts as the load: slots are for
#: the load that comes again, not for the tail of a burst.
PEAK_LAPS = 128
#: A load that grew or shrank by this factor is another load.
LOAD_CHANGED = 1.5
#: Laps between two changes at one load, on the average.
PAUSE = 200
#: Blocks of laps that a number of slots needs before others are held against it.
LEAST_BLOCKS = 6
#: Blocks after which a trial ends however close the two are.
ENOUGH_BLOCKS = 20
#: Less than this is no difference, and fewer slots cost less of the host.
TIE = 0.005
#: A loss of tokens per second, prompts included, that is no noise.
LOSS = 0.01
#: Less than this is not worth a trial.
WORTH_TRYING = 0.02
#: A trial that is slower by more than this ends at once.
MUCH_SLOWER = 0.10
#: Laps without one that counts, after which a trial is given up.
TRIAL_LAPS = 2000
#: Laps for which a failure is remembered, twice as long after each further one.
REMEMBERED = 10_000
#: A lap that differs by this factor from the one at a failure makes it void.
OTHER_LAP = 1.5


class View(NamedTuple):
    """What the search needs to know of the ring.

    Attributes:
        lap: laps so far.
        slots: target slots.
        most: target slots at most.
        cap: micro-batch size that must not be exceeded; None where the plugin derives
            it from the number of slots.
        stages: decode time by micro-batch size, ms, one per stage; empty while unknown.
    """

    lap: int
    slots: int
    most: int
    cap: int | None
    stages: Sequence[Mapping[int, float]]


class Move(NamedTuple):
    """Target slots from now on, maybe those of before, and why."""

    slots: int
    why: str


@dataclass
class _Trial:
    filled: int
    base: int
    began: int
    load: int


@dataclass
class _Failure:
    lap: int
    base_s: float
    times: int


class SlotSearch:
    """Tries numbers of slots, one at a time, and keeps what was not slower."""

    def __init__(self) -> None:
        #: Requests in flight that slots are chosen for.
        self.demand = 0
        self._load = 0
        self._speeds = Speeds()
        self._rates = Rates()
        self._recent: deque[int] = deque(maxlen=PEAK_LAPS)
        self._trial: _Trial | None = None
        self._next_trial = 0
        self._failures: dict[tuple[int, int], _Failure] = {}
        self._settled: dict[int, int] = {}

    def end_lap(
        self,
        slots: int,
        sizes: Sequence[int],
        decode_s: float | None,
        any_s: float | None,
    ) -> None:
        """A lap in which a slot made a forward is over.

        Args:
            slots: target slots in force.
            sizes: requests per slot.
            decode_s: wall time of a lap of decodes; None after a prefill in it.
            any_s: wall time of any lap; None where the ring was idle before.
        """
        self._recent.append(sum(sizes))
        if decode_s:
            self._speeds.add(sizes, decode_s)
        if any_s:
            self._rates.add(slots, sizes, any_s)

    def look(self, view: View) -> Move | None:
        """What to change now, if anything."""
        demand = max(self._recent, default=0)
        if not demand or not view.stages or not all(view.stages):
            return None
        self.demand = demand
        if not 1 / LOAD_CHANGED < demand / max(self._load, 0.1) < LOAD_CHANGED:
            return self._other_load(view, demand)
        if self._trial is not None:
            return self._judge(view, self._trial)
        return self._try(view)

    def _other_load(self, view: View, demand: int) -> Move | None:
        """Begin with what was best at such a load, or with the law."""
        grown = demand > self._load
        self._load = demand
        self._rates.forget()
        # A trial that was cut off says nothing, and may not come again at once.
        if self._trial is not None:
            self._next_trial = max(self._next_trial, view.lap + PAUSE)
            self._trial = None
        most = min(view.most, demand)
        # Fewer slots that were right for a smaller load may be wrong for its prompts.
        now = most if grown else self._filled(view)
        filled = self._settled.get(_bucket(demand), now)
        filled = max(filled, self._fewest(view, demand))
        if not is_known(view.stages, demand, filled) or (
            least_lap(view.stages, demand, filled)
            > least_lap(view.stages, demand, most) * (1 + WORTH_TRYING)
        ):
            filled = most
        return self._move(view, filled, "another load")

    def _judge(self, view: View, trial: _Trial) -> Move | None:
        found = self._speeds.compare(trial.load, trial.filled, trial.base)
        late = view.lap - trial.began >= TRIAL_LAPS
        if found is None:
            if not late:
                return None
            return self._fail(view, trial, "no lap with so many slots could be timed")
        ratio, error, blocks = found
        why = (
            f"the lap with {trial.filled} took {math.exp(ratio):.3f} (+-{error:.3f}) "
            f"of that with {trial.base}"
        )
        if blocks >= 2 and ratio - 2 * error > MUCH_SLOWER:
            return self._fail(view, trial, why)
        clear = blocks >= LEAST_BLOCKS and abs(ratio) > max(3 * error, 4 * TIE)
        if not clear and blocks < ENOUGH_BLOCKS and not late:
            return None
        if ratio > (TIE if trial.filled < trial.base else -TIE):
            return self._fail(view, trial, why)
        tried, base = self._slots(view, trial.filled), self._slots(view, trial.base)
        if not self._rates.is_known(tried) and not late:
            return None
        rate = self._rates.log_ratio(tried, base)
        if rate is not None:
            why += f", tokens per second {math.exp(rate):.3f} of it"
            if rate < -LOSS:
                return self._fail(view, trial, why)
        self._trial = None
        self._settled[_bucket(self.demand)] = trial.filled
        self._next_trial = max(view.lap, trial.began + PAUSE)
        return Move(view.slots, why)

    def _fail(self, view: View, trial: _Trial, why: str) -> Move | None:
        key = _bucket(self.demand), trial.filled
        times = self._failures[key].times + 1 if key in self._failures else 0
        _live, base_s = self._speeds.lap(self.demand, trial.base, 1)
        self._failures[key] = _Failure(view.lap, base_s, times)
        self._settled[_bucket(self.demand)] = trial.base
        self._trial = None
        self._next_trial = trial.began + 2 * PAUSE
        return self._move(view, trial.base, why)

    def _try(self, view: View) -> Move | None:
        if view.lap < self._next_trial:
            return None
        base = self._filled(view)
        live, lap_s = self._speeds.lap(self.demand, base, LEAST_BLOCKS)
        if not live or not self._rates.is_known(view.slots):
            return None
        bounds = {
            filled: least_lap(view.stages, live, filled) / 1e3
            for filled in self._candidates(view, base, live, lap_s)
        }
        bounds = {f: s for f, s in bounds.items() if s < lap_s * (1 - WORTH_TRYING)}
        if not bounds:
            return None
        best = min(bounds.values())
        filled = next(f for f, s in bounds.items() if s <= best * (1 + WORTH_TRYING))
        self._trial = _Trial(filled, base, view.lap, live)
        self._rates.forget(self._slots(view, filled))
        why = (
            f"to try: a lap takes {lap_s * 1e3:.1f} ms, the devices allow "
            f"{bounds[filled] * 1e3:.1f} with {filled}"
        )
        return self._move(view, filled, why)

    def _candidates(
        self, view: View, base: int, live: int, lap_s: float
    ) -> Iterator[int]:
        """Numbers of filled slots worth a look: large steps first."""
        most, fewest = min(view.most, live), self._fewest(view, live)
        steps = [base // 2, base * 2, base - 1, base + 1, *range(1, most + 1)]
        for filled in dict.fromkeys(min(max(step, fewest), most) for step in steps):
            failure = self._failures.get((_bucket(self.demand), filled))
            if filled == base or not is_known(view.stages, live, filled):
                continue
            if failure is not None:
                same = 1 / OTHER_LAP < lap_s / (failure.base_s or lap_s) < OTHER_LAP
                if same and view.lap - failure.lap < REMEMBERED << failure.times:
                    continue
            yield filled

    def _fewest(self, view: View, live: int) -> int:
        """Slots that a given cap needs for so many requests."""
        if view.cap is None:
            return 1
        return min(-(-live // view.cap), view.most, live)

    def _filled(self, view: View) -> int:
        return min(view.slots, view.most, self.demand)

    def _move(self, view: View, filled: int, why: str) -> Move | None:
        slots = self._slots(view, filled)
        return None if slots == view.slots else Move(slots, why)

    def _slots(self, view: View, filled: int) -> int:
        """All slots stay open to a load that grows, unless fewer were chosen."""
        return view.most if filled >= min(view.most, self.demand) else filled


def _bucket(demand: int) -> int:
    """Loads within a quarter of each other are one."""
    return round(3 * math.log2(demand))
