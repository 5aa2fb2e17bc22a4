"""Predicted throughput of a ring, from measured operating points.

Lap ``T = max(sum over slots of t(b_i), P * t(b_max))``, throughput = in flight / T,
with ``t(b)`` the time of one stage for a micro-batch of ``b`` (hop and host time
included, as the measurements include them). Between two measured sizes ``t`` is read
from a curve; the curves that fit the same points differ, and that is the range. Model
and its check: ``docs/diagnose.md``.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

#: Routing is skewed: as many experts as this share of all take most tokens.
_EVEN_ROUTING = (0.5, 1.0)
#: Output head and sampling of the last stage, as a share of a one-request lap.
HEAD_SHARE = (0.034, 0.062)

Curve = Callable[[float], float]


#: A dense model's stage time grows by so much over its whole range of small batches
#: (TD-Pipe's published profiles: 1 to 64 requests, +24 % and +22 %).
_DENSE_RISE = 0.1


@dataclass(frozen=True)
class Anchor:
    """Stage time measured at one micro-batch size, in seconds."""

    size: float
    stage_s: float


@dataclass(frozen=True)
class Curves:
    """Stage times that fit the anchors.

    Attributes:
        fast, slow: the curves that bound ``t`` between the anchors.
        words: what they are, for the reader.
        measured: whether two sizes were measured (else only bounds are known).
    """

    fast: Curve
    slow: Curve
    words: str
    measured: bool


def experts_touched(size: float, experts: float, top_k: int) -> float:
    """Distinct experts that ``size`` tokens of a layer use under even routing."""
    return experts * (1.0 - math.pow(1.0 - top_k / experts, size))


def _touched(experts: float, top_k: int, size: float) -> float:
    return experts_touched(size, experts, top_k)


def stage_curves(
    anchors: Sequence[Anchor],
    experts: int | None,
    top_k: int | None,
    dense: bool = False,
) -> Curves | None:
    """Curves through the smallest and the largest anchor; None without any.

    Args:
        anchors: measured stage times.
        experts, top_k: of a mixture of experts, if known.
        dense: whether the model is known to be none.
    """
    if not anchors:
        return None
    low = min(anchors, key=lambda a: a.size)
    high = max(anchors, key=lambda a: a.size)
    moe = (experts, top_k) if experts and top_k and experts > top_k else None
    if high.size - low.size < 0.5:
        return _one_anchor(high, moe, dense)
    rise = max(high.stage_s - low.stage_s, 0.0)

    def between(shape: Callable[[float], float]) -> Curve:
        first, last = shape(low.size), shape(high.size)
        return lambda b: low.stage_s + rise * (shape(b) - first) / (last - first)

    two = f"two measured points (micro-batches of {low.size:.3g} and {high.size:.3g})"
    if moe is not None:
        count, k = moe
        skewed, even = (
            between(partial(_touched, max(share * count, k + 1), k))
            for share in _EVEN_ROUTING
        )
        words = f"experts touched ({count}, top-{k}) through {two}"
        return Curves(even, skewed, words, True)
    exponent = math.log(max(high.stage_s / low.stage_s, 1.0)) / math.log(
        high.size / low.size
    )
    return Curves(
        between(lambda b: b),
        lambda b: low.stage_s * (b / low.size) ** exponent,
        f"straight line and power law through {two}",
        True,
    )


def _one_anchor(anchor: Anchor, moe: tuple[int, int] | None, dense: bool) -> Curves:
    """Only bounds: stage time may be flat, or all of it may grow with the size."""
    words = "one measured point: between flat and proportional stage time"
    fixed = 1.0 - _DENSE_RISE if dense else 0.0

    def steep(b: float) -> float:
        if moe is not None:
            whole = experts_touched(anchor.size, *moe)
            return anchor.stage_s * experts_touched(b, *moe) / whole
        return anchor.stage_s * (fixed + (1.0 - fixed) * b / anchor.size)

    if moe is not None:
        words = "one measured point: between flat stage time and experts touched"
    elif dense:
        words = "one measured point of a dense model: stage time nearly flat"
    return Curves(steep, lambda b: anchor.stage_s, words, False)


def lap_s(sizes: Sequence[int], stage: Curve, pp_size: int) -> float:
    """Lap time of filled slots of these sizes, equal stages, in seconds."""
    return max(sum(stage(b) for b in sizes), pp_size * stage(max(sizes)))


def even_sizes(in_flight: float, slots: int) -> list[int]:
    """``in_flight`` requests spread over ``slots`` slots."""
    whole = max(round(in_flight), 1)
    base, more = divmod(whole, slots)
    return [n for n in [base + 1] * more + [base] * (slots - more) if n]


def throughput(
    in_flight: float, slots: int, stage: Curve, pp_size: int, extra_s: float = 0.0
) -> float:
    """Tokens per second when spread evenly; ``extra_s`` is prefill time of a lap."""
    return in_flight / (lap_s(even_sizes(in_flight, slots), stage, pp_size) + extra_s)


def stretched_by_layers(
    lap: float, filled: int, partition: Sequence[int], head_s: float
) -> float:
    """Lap time with uneven layers, of a lap that balanced stages would take.

    The way through all stages stays as long; the slowest stage counts once for every
    filled slot.

    Args:
        lap: seconds of a lap with equal stages.
        filled: slots that hold requests.
        partition: layers per stage.
        head_s: seconds that output head and sampling add to the last stage, per
            micro-batch.
    """
    layer = max(lap - head_s, 0.0) / sum(partition)
    loads = [count * layer for count in partition]
    loads[-1] += head_s
    return max(lap, filled * max(loads))
