"""How large a micro-batch may become, and over how many slots filling spreads."""

# A lap with M filled slots of P + D takes M, or P + min(M - 2, D) stage times
# (docs/law.md): up to a depth of P - 2 the whole ring costs no more than P slots.
# Beyond, 16 slots of 2 are slower than 8 slots of 4. One or two hide hop and CPU time.
LATENCY_HIDING_SLOTS = 2


def target_slots(
    pp_size: int, async_batch_depth: int, requested: int | None = None
) -> int:
    """Number of slots that filling spreads over, ``S``.

    Args:
        pp_size: pipeline stages, ``P`` (at least 1).
        async_batch_depth: SGLang's ``--pp-async-batch-depth`` (0 or more). The ring
            has ``pp_size + async_batch_depth`` slots.
        requested: what the user asked for; larger than the ring means the ring.

    Returns:
        A number from 1 to the length of the ring.
    """
    ring = pp_size + async_batch_depth
    if requested is not None:
        return max(1, min(requested, ring))
    if async_batch_depth > max(LATENCY_HIDING_SLOTS, pp_size - 2):
        return pp_size
    return ring


def derive_cap(max_running_requests: int, slots: int) -> int:
    """Largest micro-batch that ``slots`` slots need to hold every request.

    Rounded up: rounding down, as stock does, loses rows (60 over 8 gives 7, and
    8 slots of 7 hold 56).
    """
    return max(-(-max_running_requests // slots), 1)


def stock_cap(max_running_requests: int, pp_size: int) -> int:
    """The cap SGLang derives: ``max(max_running_requests // pp_size, 1)``.

    Source: ``Scheduler.init_model_worker``, the same in 0.5.4 to 0.5.23.
    """
    return max(max_running_requests // pp_size, 1)
