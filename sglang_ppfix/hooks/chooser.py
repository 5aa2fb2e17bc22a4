"""Policy ``auto``: PP rank 0 chooses the number of slots, and explains every change.

The law speaks first, with the times that all stages report. Then what was measured:
where the same load ran slower after a change, the change is taken back and not tried
again for a while.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sglang_ppfix.policy import Choice, choose_slots, fit_stage_time, host_bound

if TYPE_CHECKING:
    from .ring import Ring

logger = logging.getLogger(__name__)

#: Laps between two looks at the figures.
LOOK = 16
#: Laps that a choice lasts, unless the load changed.
DWELL = 250
#: A load that grew or shrank by this factor is another load.
LOAD_CHANGED = 1.5
#: Slower by more than this, at the same load, was a mistake.
SLOWER = 0.02
#: Laps for which a mistake is remembered.
REMEMBERED = 10_000
#: Laps that a speed is averaged over before it counts.
SETTLED = 60
#: Weight of the newest lap in the mean speed.
NEWEST = 0.05


class Chooser:
    """Chooses target slots on rank 0; other ranks only follow."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self._changed_at = 0
        self._probed_at = 0
        self._peak = 0.0
        self._peak_at_change = 0.0
        # (requests in flight, target slots) -> mean tokens per second, laps counted
        self._speed: dict[tuple[int, int], tuple[float, int]] = {}
        self._mistakes: dict[tuple[int, int], int] = {}

    def end_lap(self, sizes: list[int], seconds: float | None) -> None:
        """A lap of decodes is over.

        Args:
            sizes: requests per slot in it.
            seconds: wall time; None where it says nothing (a prefill, the first).
        """
        live = sum(sizes)
        # Slots are for the load that comes again, not for the tail of a burst.
        self._peak = max(self._peak * (1 - 1 / DWELL), float(live))
        if seconds:
            self._remember(live, live / seconds)
        if self.ring.laps.count % LOOK == 0:
            self._look()

    def _remember(self, live: int, tok_s: float) -> None:
        key = (live, self.ring.slots)
        mean, laps = self._speed.get(key, (tok_s, 0))
        self._speed[key] = (mean + NEWEST * (tok_s - mean), laps + 1)

    def _look(self) -> None:
        laps = self.ring.laps.count
        demand = max(round(self._peak), 1)
        before = max(self._peak_at_change, 1.0)
        same_load = 1 / LOAD_CHANGED < demand / before < LOAD_CHANGED
        if same_load and laps - self._changed_at < DWELL:
            return
        choice = self._choice(demand)
        if choice is None:
            return
        wanted = self._without_mistakes(choice, demand, laps)
        if wanted != self.ring.slots:
            self._apply(wanted, demand, choice)

    def _choice(self, demand: int) -> Choice | None:
        reports = self.ring.courier.received
        if len(reports) < self.ring.stages or "decode_ms" not in reports[0]:
            return None
        times = [_times(report) for report in reports]
        most = self.ring.most_slots()
        laps = self.ring.laps
        host = host_bound(
            times, round(laps.largest), round(laps.filled), laps.lap_s * 1e3
        )
        if host is not None:
            return choose_slots(host, demand, most)
        choice = choose_slots([fit_stage_time(known) for known in times], demand, most)
        if choice.laps or demand < 2 or self.ring.slots < 2:
            return choice
        return self._probe(choice)

    def _probe(self, choice: Choice) -> Choice:
        """One measured size shows no slope: half the slots show another, once."""
        laps = self.ring.laps.count
        if laps - max(self._changed_at, self._probed_at) < DWELL:
            return Choice(self.ring.slots, {})
        self._probed_at = laps
        return Choice(max(self.ring.slots // 2, 1), {})

    def _without_mistakes(self, choice: Choice, demand: int, laps: int) -> int:
        """The chosen number, or the next larger that was not slower before."""
        self._note_mistakes(demand, laps)
        for slots in range(choice.slots, self.ring.most_slots()):
            key = (demand, slots)
            if key in self._mistakes and laps - self._mistakes[key] > REMEMBERED:
                del self._mistakes[key], self._speed[key]
            if key not in self._mistakes:
                return slots
        return self.ring.most_slots()

    def _note_mistakes(self, demand: int, laps: int) -> None:
        settled = {
            slots: mean
            for (live, slots), (mean, count) in self._speed.items()
            if live == demand and count >= SETTLED
        }
        if not settled:
            return
        best = max(settled.values())
        for slots, mean in settled.items():
            if mean < best * (1 - SLOWER):
                self._mistakes.setdefault((demand, slots), laps)

    def _apply(self, slots: int, demand: int, choice: Choice) -> None:
        ring = self.ring
        predicted = ", ".join(f"{s}: {lap:.1f}" for s, lap in choice.laps.items())
        why = (
            f"predicted lap (ms) by slots {predicted}"
            if predicted
            else "to learn how stage time grows with the micro-batch"
        )
        if choice.laps and slots != choice.slots:
            why += f"; {choice.slots} slots were slower at this load before"
        logger.info(
            "ppfix auto, target slots: %d -> %d, #req: %d, %s",
            ring.slots,
            slots,
            demand,
            why,
        )
        self._changed_at = ring.laps.count
        self._peak_at_change = self._peak
        ring.request({"chosen_slots": slots})


def _times(report: Mapping[str, Any]) -> dict[int, float]:
    return {int(size): float(ms) for size, ms in report["decode_ms"].items()}
