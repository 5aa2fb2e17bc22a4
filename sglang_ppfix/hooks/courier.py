"""What a rank has to send on to rank 0, and what came around."""

import time
from collections.abc import Callable
from typing import Any

INTERVAL_S = 0.5


class Courier:
    """What this rank has to send on, and what came around."""

    def __init__(self, pp_rank: int, last: bool) -> None:
        self.pp_rank = pp_rank
        self.last = last
        self.received: list[dict[str, Any]] = []
        self._carried: list[dict[str, Any]] | None = None
        self._next = 0.0

    def take(self, reports: list[dict[str, Any]]) -> None:
        """Reports came in from the previous stage."""
        if self.pp_rank == 0:
            self.received = reports
        else:
            self._carried = reports

    def load(self, kind: str, report: Callable[[], dict[str, Any]]) -> Any:
        """Reports that go with a message of ``kind``, or None."""
        if kind != ("output" if self.last else "proxy"):
            return None
        if self.pp_rank == 0:
            now = time.monotonic()
            if now < self._next:
                return None
            self._next = now + INTERVAL_S
            return [report()]
        if self._carried is None:
            return None
        carried, self._carried = self._carried, None
        return [*carried, report()]
