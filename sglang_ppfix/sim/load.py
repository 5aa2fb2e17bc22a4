"""What clients ask for: lengths of requests, and when they come."""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .request import Request


@dataclass(frozen=True)
class Load:
    """Requests of a run.

    Attributes:
        name: for tables.
        prompts: prompt tokens of each request.
        outputs: output tokens of each, at least 1.
        arrivals: seconds, rising, one per request; None for a closed loop.
        clients: of a closed loop: each sends its next request ``think`` seconds after
            its last one ended. None for an open loop.
        think: seconds between an answer and the next request.
        stagger: of a closed loop: seconds over which the clients start.
        limits: ``max_new_tokens`` of each request; None means ``outputs``.
        aborts: request -> seconds after its arrival at which its client goes away.
    """

    name: str
    prompts: Sequence[int]
    outputs: Sequence[int]
    arrivals: Sequence[float] | None = None
    clients: int | None = None
    think: float = 1e-3
    stagger: float = 0.0
    limits: Sequence[int] | None = None
    aborts: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.arrivals is None) == (self.clients is None):
            raise ValueError(f"load {self.name}: needs arrivals or clients, not both")
        if not self.prompts or len(self.prompts) != len(self.outputs):
            raise ValueError(f"load {self.name}: needs one output per prompt")
        if min(self.prompts) < 1 or min(self.outputs) < 1:
            raise ValueError(f"load {self.name}: prompts and outputs need 1 token")


class Arrivals:
    """A load as it unfolds.

    Attributes:
        next: when the next request or abort is due, seconds; infinite for never.
        left: requests that have not ended.
    """

    def __init__(self, load: Load, kv_tokens: int | None = None) -> None:
        self._load = load
        self._kv_tokens = kv_tokens
        self._sent = 0
        self._events: list[tuple[float, int, Request | None]] = []
        self.left = len(load.prompts)
        self.requests: list[Request] = []
        self.last_sent = 0.0
        self.next = math.inf
        if load.clients is not None:
            first = min(load.clients, self.left)
            for client in range(first):
                self._send(load.stagger * client / first)
        else:
            self._send(self._next_arrival())

    def pop(self) -> tuple[Request, bool]:
        """The next request, and whether it comes (else its client goes away)."""
        time, _, request = heapq.heappop(self._events)
        if request is not None:
            self._look_ahead()
            return request, False
        request = self._make(time)
        if self._load.arrivals is not None and self._sent < len(self._load.prompts):
            self._send(self._next_arrival())
        abort = self._load.aborts.get(request.rid)
        if abort is not None:
            heapq.heappush(self._events, (time + abort, request.rid, request))
        self._look_ahead()
        return request, True

    def end(self, now: float) -> None:
        """A request ended: in a closed loop, its client sends the next."""
        self.left -= 1
        if self._load.clients is not None and self._sent < len(self._load.prompts):
            self._send(now + self._load.think)

    def _next_arrival(self) -> float:
        assert self._load.arrivals is not None
        return float(self._load.arrivals[self._sent])

    def _send(self, time: float) -> None:
        heapq.heappush(self._events, (time, self._sent, None))
        self._sent += 1
        self.last_sent = time
        self._look_ahead()

    def _look_ahead(self) -> None:
        self.next = self._events[0][0] if self._events else math.inf

    def _make(self, time: float) -> Request:
        load, rid = self._load, len(self.requests)
        prompt, output = load.prompts[rid], load.outputs[rid]
        limit = output if load.limits is None else load.limits[rid]
        if self._kv_tokens is not None:
            if prompt + output + 2 > self._kv_tokens:
                raise ValueError(
                    f"request {rid} of load {load.name} needs {prompt} + {output} "
                    f"tokens; kv_tokens={self._kv_tokens} cannot hold it"
                )
            # SGLang cuts max_new_tokens to what the pool can hold.
            limit = min(limit, self._kv_tokens - prompt - 2)
        request = Request(rid, time, prompt, output, limit)
        self.requests.append(request)
        return request


# --- Loads by formula -----------------------------------------------------------


def lengths(
    mean: float, count: int, rng: np.random.Generator, shape: str = "uniform"
) -> list[int]:
    """``count`` lengths of at least 1 token.

    Args:
        mean: tokens.
        count: how many.
        rng: source of randomness.
        shape: ``fixed``; ``uniform`` between half and one and a half of the mean;
            ``long-tail``, log-normal with sigma 1.

    Raises:
        ValueError: another shape.
    """
    if shape == "fixed":
        drawn = np.full(count, mean)
    elif shape == "uniform":
        drawn = rng.uniform(0.5 * mean, 1.5 * mean, count)
    elif shape == "long-tail":
        drawn = rng.lognormal(np.log(mean) - 0.5, 1.0, count)
    else:
        raise ValueError(f"lengths {shape!r}: allowed are fixed, uniform, long-tail")
    return [int(n) for n in np.maximum(np.rint(drawn), 1)]


def closed_loop(
    clients: int,
    requests: int,
    prompt: float = 100,
    output: float = 200,
    *,
    shape: str = "uniform",
    seed: int = 0,
    think: float = 1e-3,
    stagger: float = 0.2,
) -> Load:
    """``clients`` clients, each with one request at a time."""
    rng = np.random.default_rng(seed)
    return Load(
        f"closed {clients}",
        lengths(prompt, requests, rng, shape),
        lengths(output, requests, rng, shape),
        clients=clients,
        think=think,
        stagger=stagger,
    )


def burst(
    size: int,
    requests: int,
    every: float,
    prompt: float = 100,
    output: float = 200,
    *,
    shape: str = "uniform",
    seed: int = 0,
    within: float = 5e-3,
) -> Load:
    """Bursts of ``size`` requests, one every ``every`` seconds, each ``within`` s."""
    rng = np.random.default_rng(seed)
    start = np.arange(requests) // size * every
    return Load(
        f"burst {size}",
        lengths(prompt, requests, rng, shape),
        lengths(output, requests, rng, shape),
        arrivals=sorted(start + rng.uniform(0, within, requests)),
    )


def poisson(
    rate: float,
    requests: int,
    prompt: float = 100,
    output: float = 200,
    *,
    shape: str = "uniform",
    seed: int = 0,
) -> Load:
    """``rate`` requests a second, at independent moments."""
    rng = np.random.default_rng(seed)
    return Load(
        f"poisson {rate:g}/s",
        lengths(prompt, requests, rng, shape),
        lengths(output, requests, rng, shape),
        arrivals=list(np.cumsum(rng.exponential(1.0 / rate, requests))),
    )
