"""Rules about what keeps requests out: the cap, rows or memory, or no clients."""

from . import diagnosis_advice as advice
from .diagnosis_context import Context
from .diagnosis_types import Finding, OperatingPoint, Verdict

#: KV cache counts as full from here.
FULL_USAGE = 0.9
#: Share of decode lines with a queue from which requests "wait".
_QUEUED = 0.5


def memory_limited(context: Context, point: OperatingPoint) -> Finding | None:
    """Requests wait for KV cache, or for rows."""
    waits = (point.queued_share or 0.0) > _QUEUED
    if _kv_full(context, point, waits):
        return _kv_finding(context, point, waits, 0.9, "the KV cache is full")
    rows = context.config.max_running_requests
    if not waits or rows is None or point.in_flight is None:
        return _rows_below_stages(context, point)
    if point.in_flight.value < 0.93 * rows - 0.5:
        return _reserved(context, point)
    if cap_too_small(context, point) is not None:
        return None
    return Finding(
        Verdict.MEMORY_LIMITED,
        round(0.95 * point.confidence, 2),
        "every row is taken",
        [
            (
                f"{point.in_flight.value:.3g} of {rows} rows (max_running_requests) "
                f"are in use, {point.queue or 0.0:.1f} requests wait on average"
            ),
            f"KV cache up to {point.usage or 0.0:.0%} used: memory would hold more",
        ],
        [],
        advice.more_rows(context),
        weight=0.2,
    )


def _kv_full(context: Context, point: OperatingPoint, waits: bool) -> bool:
    retracted = context.facts.retractions
    often = retracted >= max(3, 0.02 * context.facts.decode_lines)
    full = point.usage is not None and point.usage >= FULL_USAGE
    return (full and waits) or often


def _reserved(context: Context, point: OperatingPoint) -> Finding | None:
    """Rows and cap are free, yet requests wait: KV tokens are reserved for others."""
    if cap_too_small(context, point) is not None or (point.usage or 0.0) < 0.4:
        return None
    title = "requests wait for KV cache that is reserved for running ones"
    return _kv_finding(context, point, True, 0.75, title)


def _kv_finding(
    context: Context,
    point: OperatingPoint,
    waits: bool,
    confidence: float,
    title: str,
) -> Finding:
    evidence = [f"KV cache up to {point.usage or 0.0:.0%} used"]
    if waits:
        evidence.append(f"{point.queue or 0.0:.1f} requests wait on average")
    rows = context.config.max_running_requests
    if rows is not None and point.in_flight is not None:
        evidence.append(f"{point.in_flight.value:.3g} of {rows} rows are in use")
    if context.facts.retractions:
        evidence.append(
            f"{context.facts.retractions} requests were retracted (KV cache full)"
        )
    return Finding(
        Verdict.MEMORY_LIMITED,
        confidence,
        title,
        evidence,
        [],
        advice.more_kv(),
        weight=0.25,
        binding=True,
    )


def _rows_below_stages(context: Context, point: OperatingPoint) -> Finding | None:
    rows = context.config.max_running_requests
    if rows is None or rows >= context.pp_size:
        return None
    return Finding(
        Verdict.MEMORY_LIMITED,
        0.7,
        "fewer rows than stages",
        [
            (
                f"max_running_requests is {rows}: at most {rows} of {context.pp_size} "
                "stages can be busy, whatever the load"
            )
        ],
        [],
        [advice.rows_for_stages(context)],
        weight=0.05,
    )


def cap_too_small(context: Context, point: OperatingPoint) -> Finding | None:
    """Requests wait although rows and memory are free: the slots are at their cap."""
    cap, rows = context.config.cap, context.config.max_running_requests
    loop = context.config.loop_size
    waits = (point.queued_share or 0.0) > _QUEUED
    full = point.usage is not None and point.usage >= FULL_USAGE
    if not waits or full or cap is None or loop is None:
        return None
    places = cap * loop
    at_cap = point.logged is not None and point.logged.value >= cap - 0.5
    if not at_cap or (rows is not None and places >= rows):
        return None
    room = f" of {rows} rows" if rows is not None else ""
    evidence = [
        f"cap {cap} in {loop} slots: {places} requests{room} can run",
        (
            f"the slots are at the cap and {point.queue or 0.0:.1f} requests wait on "
            f"average, with the KV cache at most {point.usage or 0.0:.0%} used"
        ),
    ]
    given = context.config.cap_given
    if given is False:
        evidence.append(
            "SGLang derived the cap as max_running_requests // pp_size, rounded down"
        )
    return Finding(
        Verdict.CAP_TOO_SMALL,
        0.9 if rows is not None else 0.6,
        "pp_max_micro_batch_size keeps requests waiting",
        evidence,
        [],
        advice.raise_cap(context) if rows else [],
        weight=0.3 if rows is None else min(0.3, rows / places - 1.0),
    )


def client_limited(context: Context, point: OperatingPoint) -> Finding | None:
    """Fewer requests than stages: more would be served at no cost."""
    if point.in_flight is None or (point.queued_share or 0.0) > 0.1:
        return None
    number, pp_size = point.in_flight.value, context.pp_size
    if number > pp_size - 0.5:
        return None
    busy = min(number, float(pp_size))
    return Finding(
        Verdict.CLIENT_LIMITED,
        round(0.95 * (point.confidence or 0.5), 2),
        "fewer requests than stages",
        [
            (
                f"{number:.3g} requests in flight on {pp_size} stages, none waiting: "
                f"at most {busy:.3g} stages can be busy at a time"
            ),
        ],
        [],
        [],
        # What more clients could bring, to compare with what filling could.
        weight=pp_size / number - 1.0,
    )
