"""The ring in SGLang's own ``/metrics``: its labels, its registry, its modes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from sglang_ppfix import __version__
from sglang_ppfix.compat import scheduler as compat
from sglang_ppfix.settings import Policy

if TYPE_CHECKING:
    from sglang_ppfix.hooks.ring import Ring

#: Seconds between two updates: a scrape sees no more, and each value costs a write.
INTERVAL_S = 0.5
PREFIX = "sglang_ppfix:"
OWN_LABELS = ("slot", "policy", "version", "reason", "cause")
LAP_BUCKETS = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12)


class RingMetrics:
    """Gauges and counters of one rank."""

    def __init__(self, labels: dict[str, str], pp_rank: int) -> None:
        # SGLang sets PROMETHEUS_MULTIPROC_DIR first; the library reads it on import.
        from prometheus_client import Counter, Gauge, Histogram

        # A user's own label (--extra-metric-labels) gives way to one of ours.
        kept = {name: text for name, text in labels.items() if name not in OWN_LABELS}
        self._labels = {**kept, "pp_rank": str(pp_rank)}
        names = list(self._labels)

        def gauge(name: str, text: str, *more: str) -> Any:
            return Gauge(
                PREFIX + name,
                text,
                [*names, *more],
                multiprocess_mode="mostrecent",
            )

        self.slot_requests = gauge(
            "slot_requests", "Unfinished requests in a slot of the ring.", "slot"
        )
        self.live_requests = gauge(
            "live_requests", "Unfinished requests in all slots, each once."
        )
        self.share = gauge("share", "Requests that the last slot to take in may hold.")
        self.cap = gauge("cap", "pp_max_micro_batch_size.")
        self.target_slots = gauge("target_slots", "Slots that filling spreads over.")
        self.policy = gauge("policy", "1 for the policy in force.", "policy")
        self.info = gauge("info", "1 while the plugin acts.", "version")
        self.deferred = Counter(
            PREFIX + "deferred",
            "Turns that ended with requests waiting, by reason.",
            [*names, "reason"],
        )
        self.bubble_seconds = Counter(
            PREFIX + "bubble_seconds",
            "Time in which the device of this stage made no forward, by cause.",
            [*names, "cause"],
        )
        self.busy_seconds = Counter(
            PREFIX + "busy_seconds", "Time of this stage's device in forwards.", names
        )
        self.requeued = Counter(
            PREFIX + "requeued", "Lone requests requeued instead of aborted.", names
        )
        self.lap_seconds = Histogram(
            PREFIX + "lap_seconds",
            "Mean lap time since the last update.",
            names,
            buckets=LAP_BUCKETS,
        )
        self._next = 0.0
        self._seen: dict[tuple[str, str], float] = {}
        self._laps = (0, 0.0)

    def update(self, ring: Ring) -> None:
        """Bring everything up to date, unless that was done a moment ago."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + INTERVAL_S
        labels = self._labels
        occupancy = ring.occupants.count()
        for slot, held in enumerate(occupancy):
            self.slot_requests.labels(**labels, slot=slot).set(held)
        chunk = ring.scheduler.chunked_req is not None
        self.live_requests.labels(**labels).set(sum(occupancy) + chunk)
        self.share.labels(**labels).set(ring.log.share)
        self.cap.labels(**labels).set(compat.read_cap() or 0)
        self.target_slots.labels(**labels).set(ring.slots)
        self.info.labels(**labels, version=__version__).set(1)
        for policy in Policy:
            in_force = policy is ring.policy
            self.policy.labels(**labels, policy=policy.value).set(in_force)
        for reason, count in ring.log.deferred.items():
            self._add(self.deferred, "reason", reason, count)
        self._add(self.requeued, "", "", ring.log.requeued)
        if ring.clock is not None:
            self._add(self.busy_seconds, "", "", ring.clock.busy)
            waiting, nothing = ring.clock.waiting, ring.clock.nothing_to_do
            self._add(self.bubble_seconds, "cause", "waiting for the pipeline", waiting)
            self._add(self.bubble_seconds, "cause", "nothing to do", nothing)
        laps, seconds = ring.laps.timed, ring.laps.seconds
        if laps > self._laps[0]:
            mean = (seconds - self._laps[1]) / (laps - self._laps[0])
            self.lap_seconds.labels(**labels).observe(mean)
        self._laps = (laps, seconds)

    def _add(self, counter: Any, label: str, value: str, total: float) -> None:
        """Raise a counter to ``total``; counters only grow by differences."""
        key = (counter._name, value)
        grown = total - self._seen.get(key, 0.0)
        self._seen[key] = total
        more = {label: value} if label else {}
        counter.labels(**self._labels, **more).inc(max(grown, 0.0))
