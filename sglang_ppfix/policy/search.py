"""The number of slots that is fastest, found by trying what the devices allow. Pure.

Runs on PP rank 0 alone, because it needs a clock; all other rules of this package
decide on every rank by themselves.
"""

import math
from collections import deque
from collections.abc import Sequence

from .choosing import is_foretold, least_lap
from .failures import Failures
from .outlook import PROBE, WORTH_TRYING, worth_trying
from .rates import KEPT as MOST_RATE_BLOCKS
from .rates import LEAST_BLOCKS as LEAST_RATE_BLOCKS
from .rates import Rates
from .speeds import Speeds
from .stage_watch import StageWatch
from .trial import LEAST_BLOCKS, Trial, Verdict
from .view import Move, View

#: Laps over which the largest number of requests counts as the load: slots are for
#: the load that comes again, not for the tail of a burst.
PEAK_LAPS = 128
#: A load that grew or shrank by this factor is another load.
LOAD_CHANGED = 1.5
#: Laps between two changes at one load, on the average.
PAUSE = 200


class SlotSearch:
    """Tries numbers of slots, one at a time, and keeps what was not slower."""

    def __init__(self) -> None:
        #: Requests in flight that slots are chosen for.
        self.demand = 0
        self._load = 0
        self._speeds = Speeds()
        self._rates = Rates()
        self._recent: deque[int] = deque(maxlen=PEAK_LAPS)
        self._trial: Trial | None = None
        self._next_trial = 0
        self._failures = Failures()
        self._settled: dict[int, int] = {}
        self._watch = StageWatch()

    def end_lap(
        self,
        slots: int,
        occupancy: Sequence[int],
        tokens: int,
        decode_s: float | None,
        any_s: float | None,
    ) -> None:
        """A lap in which a slot made a forward is over.

        Args:
            slots: target slots in force.
            occupancy: requests per slot.
            tokens: made in the lap.
            decode_s: wall time of a lap of decodes; None after a prefill in it.
            any_s: wall time of any lap; None where the ring was idle before.
        """
        self._recent.append(sum(occupancy))
        if decode_s:
            self._speeds.add(occupancy, decode_s)
        if any_s and tokens:
            self._rates.add(slots, occupancy, tokens, any_s)

    def look(self, view: View) -> Move | None:
        """What to change now, if anything."""
        demand = max(self._recent, default=0)
        if not demand or not view.stages or not all(view.stages):
            return None
        self.demand = demand
        if not 1 / LOAD_CHANGED < demand / max(self._load, 0.1) < LOAD_CHANGED:
            return self._other_load(view, demand)
        ring = view.slots, _bucket(demand)
        if self._watch.changed(view.lap, ring, view.stages):
            return self._other_stages(view, demand)
        if self._trial is not None:
            return self._judge(view, self._trial)
        return self._try(view)

    def _other_stages(self, view: View, demand: int) -> Move | None:
        """Nothing that was measured holds any more."""
        self._settled.clear()
        self._speeds = Speeds()
        self._load = 0
        return self._other_load(view, demand, "other stage times")

    def _other_load(
        self, view: View, demand: int, why: str = "another load"
    ) -> Move | None:
        """Begin with what was best at such a load, or with the law."""
        grown = demand > self._load
        self._load = demand
        self._rates.forget()
        # A trial that was cut off says nothing, and may not come again at once.
        if self._trial is not None:
            self._next_trial = max(self._next_trial, view.lap + PAUSE)
            self._trial = None
        widest = min(view.widest, demand)
        # Fewer slots that were right for a smaller load may be wrong for its prompts.
        now = widest if grown else view.filled(self.demand)
        settled = self._settled.get(_bucket(demand))
        filled = max(settled or now, view.fewest(demand))
        # What was best here before is left only for a clear sign against it.
        margin = WORTH_TRYING if settled is None else PROBE
        widest_ms = least_lap(view.stages, demand, widest)
        if not is_foretold(view.stages, demand, filled, widest_ms) or (
            least_lap(view.stages, demand, filled) > widest_ms * (1 + margin)
        ):
            filled = widest
        return self._move(view, filled, why)

    def _judge(self, view: View, trial: Trial) -> Move | None:
        least_s = least_lap(view.stages, trial.load, trial.filled) / 1e3
        verdict = trial.judge(view.lap, least_s, self._speeds, self._rates)
        if verdict is None:
            return None
        if verdict.close is not None:
            return self._turn_round(view, trial, verdict)
        better, worse = trial.filled, trial.base
        if not verdict.won:
            better, worse = worse, better
        self._trial = None
        load = _bucket(self.demand)
        self._settled[load] = better
        self._failures.add(load, worse, view.lap, self._lap(view, better)[1])
        # As many pauses as there were changes, each way counted.
        changes = (not verdict.won) + (1 if trial.first is None else 2)
        self._next_trial = max(view.lap, trial.began + changes * PAUSE)
        return self._move(view, better, verdict.why) or Move(view.slots, verdict.why)

    def _turn_round(self, view: View, trial: Trial, verdict: Verdict) -> Move:
        """Try what was in force before against what was just tried."""
        lap_s = self._lap(view, trial.filled)[1] or trial.base_s
        self._trial = Trial(
            filled=trial.base,
            base=trial.filled,
            slots=trial.base_slots,
            base_slots=trial.slots,
            began=view.lap,
            decodes=self._speeds.count,
            load=trial.load,
            base_s=lap_s,
            by_rate=trial.by_rate,
            first=verdict.close,
        )
        self._rates.forget(trial.base_slots)
        return Move(trial.base_slots, f"{verdict.why}; once more the other way")

    def _try(self, view: View) -> Move | None:
        if view.lap < self._next_trial:
            return None
        base = view.filled(self.demand)
        if self._rates.blocks(view.slots) < LEAST_RATE_BLOCKS:
            return None
        live, lap_s = self._lap(view, base)
        if not live:
            return None
        measured = self._speeds.laps(live, LEAST_BLOCKS)
        measured[base] = live, lap_s
        could = self._candidates(view, base, live, lap_s)
        filled = worth_trying(view.stages, could, base, measured)
        if filled is None:
            return None
        slots = view.slots_for(filled, self.demand)
        by_rate = not self._speeds.lap(self.demand, base, LEAST_BLOCKS)[0]
        self._trial = Trial(
            filled=filled,
            base=base,
            slots=slots,
            base_slots=view.slots,
            began=view.lap,
            decodes=self._speeds.count,
            load=live,
            base_s=lap_s,
            by_rate=by_rate,
        )
        self._rates.forget(slots)
        allowed_ms = least_lap(view.stages, live, filled)
        why = (
            f"to try: a lap takes {lap_s * 1e3:.1f} ms, the devices allow "
            f"{allowed_ms:.1f} with {filled}"
        )
        return self._move(view, filled, why)

    def _lap(self, view: View, filled: int) -> tuple[int, float]:
        """(requests in flight, seconds) of a lap; of laps with prompts where others
        are too rare; ``(0, 0.0)`` while not known."""
        lap = self._speeds.lap(self.demand, filled, LEAST_BLOCKS)
        slots = view.slots_for(filled, self.demand)
        if not lap[0] and self._rates.blocks(slots) == MOST_RATE_BLOCKS:
            return self._rates.lap(slots)
        return lap

    def _candidates(self, view: View, base: int, live: int, lap_s: float) -> list[int]:
        load = _bucket(self.demand)
        return [
            filled
            for filled in range(view.fewest(live), min(view.most, live) + 1)
            if filled != base
            and is_foretold(view.stages, live, filled, lap_s * 1e3)
            and not self._failures.bars(load, filled, view.lap, lap_s)
        ]

    def _move(self, view: View, filled: int, why: str) -> Move | None:
        slots = view.slots_for(filled, self.demand)
        return None if slots == view.slots else Move(slots, why)


def _bucket(demand: int) -> int:
    """Loads within a quarter of each other are one."""
    return round(3 * math.log2(demand))
