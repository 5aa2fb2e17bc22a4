"""From what the clients and the devices saw to the figures of one run."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .load import RequestResult, throughput
from .oracle import check_output
from .trace import (
    Forward,
    bubble_share,
    largest_micro_batch,
    slots_filled,
    token_times,
)


@dataclass(frozen=True)
class Spread:
    """Mean and 99th percentile over requests, ms."""

    mean: float
    p99: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread | None":
        """``None`` without values."""
        if not values:
            return None
        return cls(float(np.mean(values)), float(np.percentile(values, 99)))


@dataclass(frozen=True)
class Measurement:
    """One load on one server.

    Attributes:
        tok_s: output tokens a second, from the first request sent to the last answer.
        tpot_ms: time per output token after the first, over requests.
        ttft_ms: time to the first token, over requests.
        slots_filled: decode forwards of all slots over those of the busiest one.
        largest_micro_batch: most requests in one decode forward.
        bubble_share: part of the time in which the stages ran nothing, mean of stages.
        wrong_tokens: what the oracle objects to, one text a request.
        errors: what went wrong, one text a request.
    """

    tok_s: float
    tpot_ms: Spread | None
    ttft_ms: Spread | None
    slots_filled: float
    largest_micro_batch: int
    bubble_share: float
    wrong_tokens: tuple[str, ...]
    errors: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def measure(
    results: Sequence[RequestResult],
    traces: Sequence[Sequence[Forward]],
    pp_size: int,
) -> Measurement:
    """Figures of one load.

    Times of tokens are the client's for streamed requests; else they are when the last
    stage's device had the token, which leaves out the way back to the client.

    Args:
        results: what the clients got.
        traces: forwards of that load, one list a rank; empty for a server that wrote
            none, and then what comes from them is missing or 0.
        pp_size: number of stages.
    """
    made = token_times(traces[-1]) if traces else {}
    tpot, ttft, wrong = [], [], []
    for result in results:
        request = result.request
        objection = check_output(
            request.prompt, result.output, pp_size, request.sampling
        )
        if objection:
            wrong.append(f"{request.rid}: {objection}")
        first, last = _first_and_last(result, made.get(request.rid, []))
        if first is not None and last is not None:
            ttft.append((first - result.sent) * 1e3)
            if len(result.output) > 1:
                tpot.append((last - first) * 1e3 / (len(result.output) - 1))
    first_rank = traces[0] if traces else []
    filled = slots_filled(first_rank)
    return Measurement(
        tok_s=throughput(results),
        tpot_ms=Spread.of(tpot),
        ttft_ms=Spread.of(ttft),
        slots_filled=filled.total() / max(filled.values()) if filled else 0.0,
        largest_micro_batch=largest_micro_batch(first_rank),
        bubble_share=sum(bubble_share(t) for t in traces) / max(len(traces), 1),
        wrong_tokens=tuple(wrong),
        errors=tuple(
            f"{result.request.rid}: {result.error}"
            for result in results
            if result.error
        ),
    )


def _first_and_last(
    result: RequestResult, made: Sequence[float]
) -> tuple[float | None, float | None]:
    if result.first_token is not None:
        return result.first_token, result.finished
    # The chunks of a long prompt come before the forwards that each made a token.
    tokens = len(result.output)
    if not tokens or len(made) < tokens:
        return None, None
    return made[-tokens], made[-1]


def outputs_identical(runs: Sequence[Sequence[RequestResult]]) -> bool:
    """Whether every run of the same load gave the same tokens, request by request."""
    return all(
        [result.output for result in run] == [result.output for result in runs[0]]
        for run in runs
    )
