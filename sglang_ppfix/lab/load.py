"""Requests and how they arrive: planned first (pure, seeded), then sent."""

import itertools
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from . import token_rule
from .errors import LabError

Arrival = Literal["burst", "closed", "poisson"]
AbortKind = Literal["disconnect", "abort_request"]
_loads = itertools.count()

GREEDY: Mapping[str, Any] = {"temperature": 0}


@dataclass(frozen=True)
class Lengths:
    """Fixed (``low == high``), uniform, or exponential token counts.

    Attributes:
        low: smallest count, at least 1.
        high: largest count.
        mean: mean of an exponential draw, cut to ``low`` .. ``high``; ``None`` draws
            uniformly.
    """

    low: int
    high: int
    mean: float | None = None

    @classmethod
    def parse(cls, text: str, setting: str) -> "Lengths":
        """Read ``"40"``, ``"10-60"`` (uniform) or ``"exp:40"`` (1 to 8 times that).

        Raises:
            LabError: the text is something else, or below 1 token.
        """
        match = re.fullmatch(r"(exp:)?(\d+)(?:-(\d+))?", text.strip())
        if match and not (match[1] and match[3]):
            low = int(match[2])
            if match[1] and low:
                return cls(1, 8 * low, float(low))
            high = int(match[3] or low)
            if 1 <= low <= high:
                return cls(low, high)
        raise LabError(
            f'{setting} {text!r}: write a number of tokens as "40", "10-60" or "exp:40"'
        )

    def draw(self, rng: random.Random) -> int:
        """One count."""
        if self.mean is None:
            return rng.randint(self.low, self.high)
        return min(max(round(rng.expovariate(1 / self.mean)), self.low), self.high)

    @property
    def average(self) -> float:
        """Mean count (of an exponential draw, before it is cut)."""
        return (self.low + self.high) / 2 if self.mean is None else self.mean


@dataclass(frozen=True)
class PlannedRequest:
    """One request, before it is sent.

    Attributes:
        rid: request id, also SGLang's; names the request in traces.
        prompt: token ids.
        output_tokens: tokens to generate (``max_new_tokens``, EOS ignored).
        arrive_s: when a Poisson load sends it, in seconds after the start.
        sampling: SGLang's sampling parameters.
        abort_after_s: end it that long after it was sent; ``None`` lets it finish.
        abort: how: the client hangs up, or calls ``/abort_request``.
        extra: further fields of the ``/generate`` body.
    """

    rid: str
    prompt: tuple[int, ...]
    output_tokens: int
    arrive_s: float = 0.0
    sampling: Mapping[str, Any] = field(default_factory=lambda: GREEDY)
    abort_after_s: float | None = None
    abort: AbortKind = "disconnect"
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Load:
    """Requests to send to one server.

    Attributes:
        arrival: ``burst`` sends bursts of ``clients`` requests, each burst as one call,
            so that one scheduler step takes it in, and the next when it is answered
            (SGLang answers a call with an error when one of its requests has one);
            ``closed`` keeps ``clients`` requests in flight; ``poisson`` sends each
            request at its own time.
        clients: requests in flight.
        requests: what to send, in order.
    """

    arrival: Arrival
    clients: int
    requests: tuple[PlannedRequest, ...]

    def __post_init__(self) -> None:
        """Refuse what the arrival cannot do.

        Raises:
            LabError: no request, ids that SGLang mixes up, or a client that hangs up on
                a part of a burst.
        """
        if not self.requests or self.clients < 1:
            raise LabError(
                f"load of {len(self.requests)} requests, {self.clients} clients: "
                "need 1 or more of both"
            )
        # SGLang's abort_request ends every request whose id begins with the given one.
        ids = sorted(request.rid for request in self.requests)
        for shorter, longer in itertools.pairwise(ids):
            if longer.startswith(shorter):
                raise LabError(f"rid {longer!r}: begins with another one, {shorter!r}")
        hang_up = any(
            request.abort_after_s is not None and request.abort == "disconnect"
            for request in self.requests
        )
        if self.arrival == "burst" and hang_up:
            raise LabError("a burst is one call: no client can hang up on a part of it")
        fields = {tuple(sorted(request.extra)) for request in self.requests}
        if self.arrival == "burst" and len(fields) > 1:
            raise LabError("a burst is one call: all its requests need the same extra")


def plan_load(
    arrival: Arrival,
    clients: int,
    prompt: Lengths,
    output: Lengths,
    seed: int,
    requests: int | None = None,
    rate_per_s: float | None = None,
    sampling: Mapping[str, Any] = GREEDY,
    rid_prefix: str | None = None,
) -> Load:
    """Draw a load; the same arguments give the same requests, ids apart.

    Args:
        arrival: see :class:`Load`.
        clients: see :class:`Load`.
        prompt: prompt lengths in tokens.
        output: output lengths in tokens.
        seed: of lengths, prompts and arrival times.
        requests: how many; default ``clients``.
        rate_per_s: arrivals a second of a Poisson load.
        sampling: SGLang's sampling parameters of every request.
        rid_prefix: begins all request ids; by default another one for each load.
            SGLang aborts a streamed request's id once more two seconds after its end:
            a request that used it again would be hit.

    Raises:
        LabError: a Poisson load without a rate above 0.
    """
    rng = random.Random(f"{seed} {arrival} {clients}")
    if arrival == "poisson" and not (rate_per_s and rate_per_s > 0):
        raise LabError(f"rate {rate_per_s}: a poisson load needs arrivals per second")
    if rid_prefix is None:
        rid_prefix = f"load{next(_loads)}-"
    planned, arrive_s = [], 0.0
    for number in range(clients if requests is None else requests):
        if arrival == "poisson" and rate_per_s:
            arrive_s += rng.expovariate(rate_per_s)
        planned.append(
            PlannedRequest(
                rid=f"{rid_prefix}{number:05}",
                prompt=random_prompt(rng, prompt.draw(rng)),
                output_tokens=output.draw(rng),
                arrive_s=arrive_s,
                sampling=sampling,
            )
        )
    return Load(arrival, clients, tuple(planned))


def random_prompt(rng: random.Random, length: int) -> tuple[int, ...]:
    """``length`` tokens that are neither BOS nor EOS."""
    return tuple(
        rng.randint(token_rule.FIRST_TOKEN, token_rule.LAST_TOKEN)
        for _ in range(length)
    )


@dataclass
class RequestResult:
    """What became of one request. Times are seconds on CLOCK_MONOTONIC.

    Attributes:
        request: what was sent.
        sent: when it was sent; 0 if it never was.
        first_token: when the first token came, of a streamed request.
        finished: when the answer was complete, or the request ended otherwise.
        output: token ids received.
        finish: SGLang's finish reason, ``disconnect`` or ``error``.
        error: what went wrong; ``None`` for a finished or wilfully aborted request.
        meta: SGLang's ``meta_info``.
    """

    request: PlannedRequest
    sent: float = 0.0
    first_token: float | None = None
    finished: float = 0.0
    output: list[int] = field(default_factory=list)
    finish: str = ""
    error: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)


def throughput(results: Sequence[RequestResult]) -> float:
    """Output tokens a second, from the first request sent to the last one finished."""
    begin = min(result.sent for result in results)
    end = max(result.finished for result in results)
    return sum(len(result.output) for result in results) / (end - begin)
