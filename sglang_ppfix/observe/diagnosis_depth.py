"""Rule about async depth: more slots than the stages can use."""

from . import diagnosis_advice as advice
from .diagnosis_context import Context
from .diagnosis_law import even_sizes
from .diagnosis_types import Finding, OperatingPoint, Verdict

#: Slots beyond P + 2 hide nothing more (one or two hide hop and host time).
_HIDING_SLOTS = 2
#: Below this gain there is nothing to fix: stage time is flat in the batch size.
_LEAST_GAIN = 1.03


def async_depth(context: Context, point: OperatingPoint) -> Finding | None:
    """More slots than the stages can use."""
    depth = context.config.async_depth or 0
    if depth <= _HIDING_SLOTS or point.in_flight is None or point.filled is None:
        return None
    pp_size, loop = context.pp_size, context.pp_size + depth
    filled, number = point.filled.value, point.in_flight.value
    if filled > pp_size + _HIDING_SLOTS + 0.5:
        return _too_many_filled(context, point, filled)
    evidence = [
        (
            f"depth {depth} makes a ring of {loop} slots; {filled:.3g} of them hold "
            f"requests, and more than {pp_size + _HIDING_SLOTS} never pay"
        )
    ]
    if context.config.cap_given is False:
        evidence.append(
            f"SGLang derives the cap over {pp_size} slots, not {loop}: the rows are "
            f"used up before the last {depth} slots can fill"
        )
    instead = None
    if number >= loop:
        each = max(even_sizes(number, loop))
        what = f"filling all {loop} slots instead (at most {each} each)"
        instead = context.spread(point, loop, what)
    if instead is not None:
        evidence.append(
            f"filling all {loop} slots would be no better than filling {pp_size}: "
            "small micro-batches pay the fixed stage time more often"
        )
    return Finding(
        Verdict.ASYNC_DEPTH,
        0.6,
        "async depth adds slots that do not help",
        evidence,
        [instead] if instead is not None else [],
        [advice.no_async_depth(context)],
        weight=0.02,
    )


def _too_many_filled(
    context: Context, point: OperatingPoint, filled: float
) -> Finding | None:
    """All slots of a deep ring hold a few requests each: laps are long."""
    pp_size, number = context.pp_size, point.in_flight
    what = f"{pp_size} slots instead of {filled:.3g} (async depth 0)"
    prediction = context.spread(point, pp_size, what)
    if prediction is None or number is None or prediction.gain < _LEAST_GAIN:
        return None
    curves = context.curves(point)
    return Finding(
        Verdict.ASYNC_DEPTH,
        0.7 if curves is not None and curves.measured else 0.5,
        "requests are spread over more slots than the stages can use",
        [
            (
                f"{number.value:.3g} requests in {filled:.3g} slots of "
                f"{context.config.loop_size}: every stage pays its fixed time "
                f"{filled:.3g} times a lap instead of {pp_size} times"
            )
        ],
        [prediction],
        [advice.no_async_depth(context)],
        weight=prediction.gain - 1.0,
    )
