"""Rule about the slots: too few of them filled, or unevenly filled."""

import math

from . import diagnosis_advice as advice
from .diagnosis_context import Context
from .diagnosis_law import (
    HEAD_SHARE,
    even_sizes,
    lap_s,
    stretched_by_layers,
)
from .diagnosis_layers import default_partition, shown
from .diagnosis_types import Finding, OperatingPoint, Prediction, Verdict

#: A largest micro-batch this much above the even one is uneven, not chance.
_UNEVEN = 1.3


def slots_not_filled(context: Context, point: OperatingPoint) -> Finding | None:
    """Requests sit in fewer or fuller slots than the stages need."""
    pp_size, ideal = context.pp_size, context.ideal(point)
    if point.in_flight is None or point.filled is None or ideal is None:
        return _proved_by_bounds(context, point)
    largest = point.largest.value if point.largest is not None else 0.0
    wanted = min(float(pp_size), point.in_flight.value)
    few = point.filled.value < wanted - 0.6 and largest >= ideal + 0.6
    uneven = largest >= max(ideal + 0.9, _UNEVEN * ideal)
    if not (few or uneven):
        return None
    evidence = _filling_words(context, point, few)
    predictions = _even_filling(context, point)
    confidence = point.confidence or 0.5
    if not few:
        confidence *= 0.9
    best = predictions[0] if predictions else None
    gain = best.gain if best is not None else 1.0 + 0.3 * (largest / ideal - 1.0)
    fixes = advice.fill_evenly(context, point)
    title = "requests are packed into too few slots"
    if not few:
        title = "requests lie unevenly in the slots"
    return Finding(
        Verdict.SLOTS_NOT_FILLED,
        round(min(confidence, 0.97), 2),
        title,
        evidence,
        predictions,
        fixes,
        weight=gain - 1.0,
    )


def _filling_words(context: Context, point: OperatingPoint, few: bool) -> list[str]:
    pp_size, loop = context.pp_size, context.config.loop_size or context.pp_size
    assert point.in_flight is not None
    assert point.filled is not None
    number, filled = point.in_flight.value, point.filled.value
    largest = point.largest.value if point.largest is not None else 0.0
    ideal = context.ideal(point)
    if point.occupancy is not None:
        lie = f"{'/'.join(map(str, point.occupancy))} in {len(point.occupancy)}"
    else:
        lie = f"in about {filled:.1f}"
    words = [
        (
            f"{number:.3g} requests are running, {lie} of {loop} slots; spread evenly "
            f"over {pp_size} slots no slot would hold more than {ideal}"
        ),
        f"the largest micro-batch sets the lap: about {largest:.3g} instead of {ideal}",
    ]
    if few:
        waiting = pp_size - min(round(filled), pp_size)
        words.append(
            f"with {round(filled)} filled slots {waiting} of {pp_size} stages wait at "
            "any moment"
        )
    logged = point.logged
    if logged is not None and point.in_flight.value > logged.high + 0.5:
        words.append(
            f"#running-req: {logged.value:.3g} in the log counts ONE slot, not the "
            f"{number:.3g} requests in flight"
        )
    return words


def _even_filling(context: Context, point: OperatingPoint) -> list[Prediction]:
    """What filling P slots evenly would bring, with equal and with real stages."""
    if point.in_flight is None or not point.tok_s:
        return []
    pp_size, number = context.pp_size, point.in_flight.value
    sizes = even_sizes(number, pp_size)
    what = f"even filling of {pp_size} slots (at most {max(sizes)} each)"
    balanced = context.spread(point, pp_size, f"{what}, stages balanced")
    if balanced is None:
        return []
    curves, single = context.curves(point), context.single_lap_s()
    split = context.config.partition
    if split is None and context.config.layers is not None:
        split = default_partition(context.config.layers, pp_size)
    if single is None or split is None or curves is None or not curves.measured:
        return [balanced]
    base, extra = lap_s(sizes, curves.fast, pp_size), context.prefill_s(point)
    low, high = sorted(
        point.accepted
        * number
        / (stretched_by_layers(base, len(sizes), split, share * single) + extra)
        for share in HEAD_SHARE
    )
    given = "the layer split" if context.config.partition else "SGLang's default split"
    uneven = Prediction(
        f"the same with {given} {shown(split)}",
        low,
        (low + high) / 2,
        high,
        point.tok_s,
        f"{curves.words}; output head {HEAD_SHARE[0]:.1%} to {HEAD_SHARE[1]:.1%} of a "
        "one-request lap",
    )
    return [balanced, uneven]


def _proved_by_bounds(context: Context, point: OperatingPoint) -> Finding | None:
    """In flight is unknown, yet it cannot be even: two proofs that need no count."""
    pp_size, rows = context.pp_size, context.config.max_running_requests
    mean = point.mean_micro_batch
    if mean is not None and rows is not None:
        most = math.ceil(rows / pp_size)
        if mean.low > most + 0.5:
            return Finding(
                Verdict.SLOTS_NOT_FILLED,
                0.8,
                "micro-batches are larger than even filling could make them",
                [
                    (
                        f"mean micro-batch {mean.value:.3g} (throughput x gap / "
                        f"{context.config.decode_log_interval}), but {rows} rows "
                        f"spread over {pp_size} slots give at most {most}"
                    )
                ],
                [],
                advice.fill_evenly(context, point),
                weight=0.3,
            )
    single = context.single_lap_s()
    if single is None or not point.tok_s or mean is None or mean.value < 1.5:
        return None
    bound = pp_size / single
    if point.tok_s * 1.1 < bound and (point.stretch or 0.0) < 0.15:
        return Finding(
            Verdict.SLOTS_NOT_FILLED,
            0.6,
            "throughput is below what full slots give even in the worst case",
            [
                (
                    f"one request alone makes {1 / single:.1f} tok/s, so {pp_size} "
                    f"slots of one make up to {bound:.0f}; larger micro-batches in "
                    f"full slots make no less, and the log shows {point.tok_s:.0f}"
                ),
                "uneven layers could cause the same; the number of clients would tell",
            ],
            [],
            advice.fill_evenly(context, point),
            weight=bound / point.tok_s - 1.0,
        )
    return None
