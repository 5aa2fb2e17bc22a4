"""The number of slots that is fastest, found by trying what the devices allow. Pure.

Runs on PP rank 0 alone, because it needs a clock; all other rules of this package
decide on every rank by themselves.
"""

from collections.abc import Sequence

from .choosing import is_foretold, least_lap
from .failures import Failures
from .load_watch import LoadWatch, bucket
from .outlook import PROBE, WORTH_TRYING, worth_trying
from .pauses import Pauses
from .rates import ENOUGH_BLOCKS as ENOUGH_RATE_BLOCKS
from .rates import LEAST_BLOCKS as LEAST_RATE_BLOCKS
from .rates import Rates
from .speeds import Speeds
from .stage_watch import Stages, StageWatch
from .trial import LEAST_BLOCKS, MUCH_SLOWER, Found, Trial
from .view import Move, View


class SlotSearch:
    """Tries numbers of slots, one at a time, and keeps what was not slower."""

    def __init__(self) -> None:
        self._laps = 0
        self._last_lap = 0
        self._load = LoadWatch()
        self._speeds = Speeds()
        self._rates = Rates()
        self._trial: Trial | None = None
        #: Target slots before a trial in whose midst others came to decide.
        self._left: int | None = None
        self._pauses = Pauses()
        self._failures = Failures()
        #: By load: filled slots that won, and seconds of their lap, 0 if not known.
        self._settled: dict[int, tuple[int, float]] = {}
        self._watch = StageWatch()
        self._stages: Stages = []
        self._slow_reports = 0

    def end_lap(
        self,
        lap: int,
        slots: int,
        occupancy: Sequence[int],
        tokens: int,
        decode_s: float | None,
        any_s: float | None,
    ) -> None:
        """A lap in which a slot made a forward is over.

        Args:
            lap: its number; one that does not follow the last ended after a time in
                which others decided.
            slots: target slots in force.
            occupancy: requests per slot.
            tokens: made in the lap.
            decode_s: wall time of a lap of decodes; None after a prefill in it.
            any_s: wall time of any lap; None where the ring was idle before.
        """
        if lap != self._last_lap + 1:
            self._resume()
        self._last_lap = lap
        self._laps += 1
        self._load.add(sum(occupancy))
        if decode_s:
            self._speeds.add(occupancy, decode_s)
        if any_s and tokens:
            self._rates.add(slots, occupancy, tokens, any_s)

    @property
    def demand(self) -> int:
        """Requests in flight that slots are for; 0 while not known."""
        return self._load.demand

    def look(self, view: View) -> Move | None:
        """What to change now, if anything."""
        demand = self.demand
        if not demand or not view.stages or not all(view.stages):
            return None
        if self._left is not None:
            slots, self._left = self._left, None
            return Move(slots, "a trial was interrupted")
        if self._load.is_other():
            return self._other_load(view, demand)
        ring = view.slots, bucket(demand)
        if self._watch.changed(self._laps, ring, view.stages):
            return self._other_stages(view, demand)
        if self._trial is not None:
            return self._judge(view, self._trial)
        if self._watch.differed or self._load.differed:
            return None
        return self._try(view)

    def _resume(self) -> None:
        """Others decided for a while: nothing of it counts."""
        if self._trial is not None:
            self._left = self._trial.base_slots
        self._trial = None
        self._load.pause()
        self._speeds = Speeds()
        self._rates = Rates()

    def _other_stages(self, view: View, demand: int) -> Move | None:
        """Nothing that was measured holds any more."""
        self._settled.clear()
        self._pauses.forget()
        self._failures = Failures()
        self._speeds = Speeds()
        self._load.chosen_for = 0
        return self._other_load(view, demand, "other stage times")

    def _other_load(
        self, view: View, demand: int, why: str = "another load"
    ) -> Move | None:
        """Begin with what was best at such a load, or with the law."""
        grown = demand > self._load.chosen_for
        self._load.chosen_for = demand
        self._rates.forget()
        slots = view.slots
        # A trial that was cut off says nothing, and may not come again at once.
        if self._trial is not None:
            slots = self._trial.base_slots
            self._end(self._trial, 0)
        widest = min(view.widest, demand)
        if bucket(demand) in self._settled:
            return self._move(view, self._known(view, demand, widest), why)
        # Fewer slots that were right for a smaller load may be wrong for its prompts.
        now = widest if grown else min(slots, view.most, demand)
        filled = max(now, view.fewest(demand))
        widest_ms = least_lap(view.stages, demand, widest)
        if not is_foretold(view.stages, demand, filled, widest_ms) or (
            least_lap(view.stages, demand, filled) > widest_ms * (1 + WORTH_TRYING)
        ):
            filled = widest
        return self._move(view, filled, why)

    def _known(self, view: View, demand: int, widest: int) -> int:
        """What was best at such a load, unless the devices clearly speak against it:
        they take longer than the lap did, and longer than they would if spread."""
        best, lap_s = self._settled[bucket(demand)]
        filled = max(best, view.fewest(demand))
        least_ms = least_lap(view.stages, demand, filled)
        slower = least_ms > lap_s * 1e3 * (1 + MUCH_SLOWER)
        narrow = least_ms > least_lap(view.stages, demand, widest) * (1 + PROBE)
        return widest if slower and narrow else filled

    def _judge(self, view: View, trial: Trial) -> Move | None:
        if trial.filled < view.fewest(trial.load):
            self._end(trial, 0)
            return Move(trial.base_slots, f"a cap of {view.cap} was given")
        verdict = trial.judge(
            self._laps, self._least_s(view, trial), self._speeds, self._rates
        )
        if verdict is None:
            return None
        if verdict.close is not None:
            return self._turn_round(view, trial, verdict.close, verdict.why)
        if not verdict.learned:
            self._end(trial, 0)
            return Move(trial.base_slots, verdict.why)
        better, worse = trial.filled, trial.base
        if not verdict.won:
            better, worse = worse, better
        lap_s = self._lap(view, better)[1]
        self._settled[trial.bucket] = better, lap_s
        self._failures.forget(trial.bucket, better)
        self._failures.add(trial.bucket, worse, self._laps, lap_s)
        changes = (not verdict.won) + (1 if trial.first is None else 2)
        self._end(trial, changes)
        slots = trial.slots if verdict.won else trial.base_slots
        return Move(slots, verdict.why)

    def _least_s(self, view: View, trial: Trial) -> float:
        """What the devices alone take for the trial's lap; 0 while one report says that
        it is much: the first forward of a new size may pay for what others do not."""
        least_s = least_lap(view.stages, trial.load, trial.filled) / 1e3
        if view.stages != self._stages:
            self._stages = view.stages
            slow = trial.is_much(least_s)
            self._slow_reports = self._slow_reports + 1 if slow else 0
        return least_s if self._slow_reports >= 2 else 0.0

    def _end(self, trial: Trial, changes: int) -> None:
        self._pauses.begin(trial.bucket, trial.began, self._laps, changes)
        self._trial = None

    def _turn_round(self, view: View, trial: Trial, found: Found, why: str) -> Move:
        """Try what was in force before against what was just tried."""
        lap_s = self._lap(view, trial.filled)[1] or trial.base_s
        self._begin(trial.other_way(self._laps, self._speeds.count, lap_s, found))
        return Move(trial.base_slots, f"{why}; once more the other way")

    def _begin(self, trial: Trial) -> None:
        self._trial = trial
        self._slow_reports = 0
        self._rates.forget(trial.slots)

    def _try(self, view: View) -> Move | None:
        if not self._pauses.are_over(self._laps):
            return None
        base = view.filled(self.demand)
        if self._rates.blocks(view.slots) < LEAST_RATE_BLOCKS:
            return None
        live, lap_s = self._lap(view, base)
        if live < base:
            return None
        could = self._candidates(view, base, live, lap_s)
        if not could:
            return None
        measured = self._speeds.laps(live, LEAST_BLOCKS)
        by_rate = base not in measured
        measured[base] = live, lap_s
        filled = worth_trying(view.stages, could, base, measured)
        if filled is None:
            return None
        self._begin(
            Trial(
                filled=filled,
                base=base,
                slots=view.slots_for(filled, self.demand),
                base_slots=view.slots,
                began=self._laps,
                decodes=self._speeds.count,
                load=live,
                bucket=bucket(self.demand),
                base_s=lap_s,
                by_rate=by_rate,
            )
        )
        allowed_ms = least_lap(view.stages, live, filled)
        why = (
            f"to try: a lap takes {lap_s * 1e3:.1f} ms, the devices allow "
            f"{allowed_ms:.1f} with {filled}"
        )
        return self._move(view, filled, why)

    def _lap(self, view: View, filled: int) -> tuple[int, float]:
        """(requests in flight, seconds) of a lap; of laps with prompts where others
        are too rare; ``(0, 0.0)`` while not known."""
        known = self._speeds.laps(self.demand, LEAST_BLOCKS)
        if filled in known:
            return known[filled]
        slots = view.slots_for(filled, self.demand)
        if self._rates.blocks(slots) >= ENOUGH_RATE_BLOCKS:
            return self._rates.lap(slots)
        return 0, 0.0

    def _candidates(self, view: View, base: int, live: int, lap_s: float) -> list[int]:
        load = bucket(self.demand)
        most = min(view.most, live, self.demand)
        return [
            filled
            for filled in range(view.fewest(live), most + 1)
            if filled != base
            and is_foretold(view.stages, live, filled, lap_s * 1e3)
            and not self._failures.bars(load, filled, self._laps, lap_s)
        ]

    def _move(self, view: View, filled: int, why: str) -> Move | None:
        slots = view.slots_for(filled, self.demand)
        return None if slots == view.slots else Move(slots, why)
