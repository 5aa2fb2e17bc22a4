"""What a run came to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .request import Request
from .timeline import Span

if TYPE_CHECKING:
    from .engine import Engine
    from .scheduler import Scheduler

Seconds = NDArray[np.float64]


@dataclass(frozen=True)
class Outcome:
    """Figures of one run. Times in seconds.

    Attributes:
        policy: who decided.
        load: name of the load.
        clients: of a closed loop; None else.
        tok_s: output tokens per second: of a closed loop while all clients are busy
            (after the first tenth of the requests, until the last is sent), else from
            the first arrival to the last end.
        makespan: from the first arrival to the last end.
        slots: filled slots, the median over time with requests in flight.
        slots_mean: their mean.
        largest: requests in the largest slot, mean over the same time.
        ttft: time to the first token, per request that had one.
        tpot: time per output token after the first, per request with two or more.
        latency: arrival to end, per request that ended.
        bubble: part of that time in which a stage does no forward, mean of the stages.
        turns: of the ring.
        retractions: times a request lost its KV.
        lost: requests that SGLang gave up for want of memory.
        requests: all of them, in order of arrival.
        admissions: (turn, slot, rids) of every prefill, if they were kept.
        spans: forwards on devices, if they were recorded.
    """

    policy: str
    load: str
    clients: int | None
    tok_s: float
    makespan: float
    slots: int
    slots_mean: float
    largest: float
    ttft: Seconds = field(repr=False)
    tpot: Seconds = field(repr=False)
    latency: Seconds = field(repr=False)
    bubble: float
    turns: int
    retractions: int
    lost: int
    requests: Sequence[Request] = field(repr=False)
    admissions: Sequence[tuple[int, int, list[int]]] | None = field(repr=False)
    spans: Sequence[Span] | None = field(repr=False)

    def row(self) -> dict[str, Any]:
        """Plain values for a table or JSON; times in milliseconds."""
        return {
            "policy": self.policy,
            "load": self.load,
            "clients": self.clients,
            "tok_s": round(self.tok_s, 1),
            "slots": self.slots,
            "slots_mean": round(self.slots_mean, 2),
            "largest": round(self.largest, 2),
            "ttft_ms": _ms(self.ttft),
            "ttft_p99_ms": _ms(self.ttft, 99),
            "tpot_ms": _ms(self.tpot),
            "tpot_p99_ms": _ms(self.tpot, 99),
            "latency_ms": _ms(self.latency),
            "bubble": round(self.bubble, 4),
            "retractions": self.retractions,
            "lost": self.lost,
        }


class Occupancy:
    """How full the slots were, weighed with time.

    Attributes:
        filled: seconds by number of filled slots.
        largest: integral of the largest slot's requests over time.
        version: of the scheduler when it was noted last.
    """

    def __init__(self) -> None:
        self.filled: defaultdict[int, float] = defaultdict(float)
        self.largest = 0.0
        self.version = -1
        self._since = 0.0
        self._now = (0, 0)

    def note(self, now: float, scheduler: Scheduler) -> None:
        """What is true from ``now`` on."""
        filled, largest = self._now
        self.filled[filled] += now - self._since
        self.largest += largest * (now - self._since)
        held = scheduler.occupancy
        self._now = (len(held) - held.count(0), max(held))
        self.version, self._since = scheduler.version, now


def summarize(run: Engine) -> Outcome:
    """The outcome of a run that is over."""
    requests = run.arrivals.requests
    ended = [r for r in requests if not r.aborted]
    begin = requests[0].arrival
    makespan = max(r.end for r in requests) - begin
    busy = {n: time for n, time in run.occupancy.filled.items() if n}
    # Nothing may have run at all: every client went away while it waited.
    total = sum(busy.values()) or float("inf")
    work = np.zeros(run.server.pp_size)
    for key, count in run.scheduler.forwards.items():
        work += np.array(run.profile.row(*key)) * count
    said = [r for r in ended if r.output > 1]
    return Outcome(
        policy=run.policy,
        load=run.load.name,
        clients=run.load.clients,
        tok_s=_throughput(run, makespan),
        makespan=makespan,
        slots=_median(busy),
        slots_mean=sum(n * time for n, time in busy.items()) / total,
        largest=run.occupancy.largest / total,
        ttft=np.array([r.first_token - r.arrival for r in requests if r.tokens]),
        tpot=np.array([(r.end - r.first_token) / (r.output - 1) for r in said]),
        latency=np.array([r.end - r.arrival for r in ended]),
        bubble=float(np.mean(1.0 - work / total)),
        turns=run.turn,
        retractions=run.scheduler.retractions,
        lost=sum(r.aborted and r.rid not in run.load.aborts for r in requests),
        requests=requests,
        admissions=run.scheduler.admissions,
        spans=run.spans,
    )


def _throughput(run: Engine, makespan: float) -> float:
    requests = run.arrivals.requests
    whole = sum(r.tokens for r in requests) / max(makespan, 1e-9)
    if run.load.clients is None:
        return whole
    start = sorted(r.end for r in requests)[len(requests) // 10]
    stop = run.arrivals.last_sent
    if stop - start < 0.1 * makespan:
        return whole
    return _tokens_between(requests, start, stop) / (stop - start)


def _tokens_between(requests: Sequence[Request], start: float, stop: float) -> float:
    """Output tokens in a stretch of time, each request's at an even pace."""
    tokens = 0.0
    for request in requests:
        if not request.tokens:
            continue
        first, end = request.first_token, request.end
        if start <= first < stop:
            tokens += 1
        overlap = min(end, stop) - max(first, start)
        if overlap > 0 and end > first:
            tokens += (request.tokens - 1) * overlap / (end - first)
    return tokens


def _median(weights: dict[int, float]) -> int:
    half = sum(weights.values()) / 2
    for value in sorted(weights):
        half -= weights[value]
        if half <= 0:
            return value
    return 0


def _ms(seconds: Seconds, percentile: float | None = None) -> float | None:
    if not len(seconds):
        return None
    if percentile is not None:
        return round(float(np.percentile(seconds, percentile)) * 1e3, 2)
    return round(float(np.mean(seconds)) * 1e3, 2)
