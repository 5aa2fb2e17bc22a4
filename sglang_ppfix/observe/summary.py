"""The summary lines: admissions, and how busy every stage was."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from sglang_ppfix.settings import LogLevel

if TYPE_CHECKING:
    from sglang_ppfix.hooks.ring import Ring

logger = logging.getLogger(__name__)


class Summary:
    """Logs every so many laps what happened since the last time."""

    def __init__(self, ring: Ring, every_laps: int) -> None:
        self.ring = ring
        self._every = every_laps
        self._due = every_laps
        self._last: dict[int, dict[str, Any]] = {}

    def end_lap(self) -> None:
        """A lap in which a slot made a forward is over."""
        if self.ring.laps.count < self._due:
            return
        self._due = self.ring.laps.count + self._every
        if not self.ring.log.speaks(LogLevel.SUMMARY):
            return
        self.ring.log.log_summary()
        self._log_laps()

    def _log_laps(self) -> None:
        laps = self.ring.laps
        stages = self._stages()
        logger.info(
            "ppfix laps, #lap: %d, lap (ms): %.1f, slots filled: %.1f/%d, "
            "largest micro-batch: %.1f, evenly: %.1f, prefill-stretched: %d%s",
            laps.count,
            laps.lap_s * 1e3,
            laps.filled,
            self.ring.length,
            laps.largest,
            laps.even,
            laps.stretched,
            stages,
        )

    def _stages(self) -> str:
        """Busy and waiting share per stage since the last summary, as text."""
        shares = []
        for report in self.ring.courier.received:
            if "busy_s" not in report:
                return ""
            last = self._last.get(report["pp_rank"], {})
            spent = [
                report[key] - last.get(key, 0.0)
                for key in ("busy_s", "waiting_s", "nothing_to_do_s")
            ]
            self._last[report["pp_rank"]] = report
            total = sum(spent)
            shares.append([part / total if total else 0.0 for part in spent])
        if not shares:
            return ""
        busy, waiting, idle = zip(*shares, strict=True)
        bottleneck = max(range(len(busy)), key=busy.__getitem__)
        return (
            f", busy: {_percents(busy)}, waiting for the pipeline: "
            f"{_percents(waiting)}, nothing to do: {_percents(idle)}, "
            f"bottleneck: PP{bottleneck}"
        )


def _percents(shares: tuple[float, ...]) -> str:
    return "/".join(f"{share:.0%}" for share in shares)
