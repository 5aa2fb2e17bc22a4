"""Policy ``auto``: PP rank 0 chooses the number of slots, and explains every change.

What the devices allow says which numbers are worth a trial, what was measured decides:
``policy/search.py``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sglang_ppfix.compat import scheduler as compat
from sglang_ppfix.policy import SlotSearch, View

from .cap import current_cap

if TYPE_CHECKING:
    from .ring import Ring

logger = logging.getLogger(__name__)

#: Laps between two looks at the figures.
LOOK = 16


class Chooser:
    """Chooses target slots on rank 0; other ranks only follow."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self._search = SlotSearch()

    def end_lap(self) -> None:
        """A lap in which a slot made a forward is over."""
        laps = self.ring.laps
        self._search.end_lap(
            laps.count,
            self.ring.slots,
            self.ring.occupants.count(),
            sum(laps.sizes),
            laps.last_decode_s,
            laps.last_s,
        )
        if self.ring.laps.count % LOOK == 0:
            self._look()

    def _look(self) -> None:
        ring = self.ring
        move = self._search.look(
            View(
                ring.slots,
                ring.length,
                ring.default_slots(),
                compat.read_cap() if current_cap().is_given() else None,
                self._stages(),
            )
        )
        if move is None:
            return
        logger.info(
            "ppfix auto, target slots: %d -> %d, #req: %d, %s",
            ring.slots,
            move.slots,
            self._search.demand,
            move.why,
        )
        if move.slots != ring.slots:
            ring.request({"chosen_slots": move.slots})

    def _stages(self) -> list[dict[int, float]]:
        """Decode times of all stages, as they came around the ring."""
        reports = self.ring.courier.received
        if len(reports) < self.ring.stages:
            return []
        return [
            {int(size): float(ms) for size, ms in report.get("decode_ms", {}).items()}
            for report in reports
        ]
