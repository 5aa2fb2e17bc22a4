"""How large a micro-batch may become, and over how many slots filling spreads."""

# Slots beyond pp_size only hide hop and CPU latency, and one or two hide it all:
# 16 slots of 2 are slower than 8 slots of 4 (docs/law.md).
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
    return pp_size + min(async_batch_depth, LATENCY_HIDING_SLOTS)


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
