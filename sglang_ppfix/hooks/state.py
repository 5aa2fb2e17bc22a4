"""The ring's state as plain values: for reports between ranks, and for HTTP."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from sglang_ppfix import __version__
from sglang_ppfix.compat import scheduler as compat

from .cap import current_cap

if TYPE_CHECKING:
    from .ring import Ring


def report(ring: Ring) -> dict[str, Any]:
    """What a rank tells rank 0 about itself."""
    return {
        "pp_rank": compat.pp_rank(ring.scheduler),
        "version": __version__,
        "policy": ring.policy.value,
        "target_slots": ring.slots,
        "iteration": ring.iteration,
        "digest": ring.log.digest(),
        "admissions": ring.log.admissions,
        "laps": ring.laps.count,
        "lap_s": ring.laps.lap_s,
        "cpu_filled_s": ring.laps.cpu_filled_s,
        "cpu_empty_s": ring.laps.cpu_empty_s,
        **({} if ring.clock is None else ring.clock.report()),
    }


def state(ring: Ring) -> dict[str, Any]:
    """What ``/server_info`` shows under ``ppfix``, from rank 0."""
    return {
        **report(ring),
        "clock_s": time.monotonic(),
        "decode_tokens": ring.laps.decode_tokens,
        "requested_slots": ring.requested_slots,
        "slots": ring.length,
        "stages": ring.stages,
        "cap": compat.read_cap(),
        "cap_given": current_cap().given,
        "log": ring.log.level.value,
        "filled": ring.laps.filled,
        "largest": ring.laps.largest,
        "even": ring.laps.even,
        "stretched_laps": ring.laps.stretched,
        "occupancy": ring.occupants.count(),
        "queue_req": len(ring.scheduler.waiting_queue),
        "new_seqs": ring.log.new_seqs,
        "requeued": ring.log.requeued,
        "deferred": dict(ring.log.deferred),
        "last_change": ring.log.last_change,
        "refused": ring.refused,
        "ranks": ring.courier.received,
    }
