"""Times every forward of this stage, without synchronisation."""

from collections.abc import Callable
from typing import Any

from .ring import current_ring


def run_batch(
    wrapped: Callable[..., Any], scheduler: Any, args: Any, kwargs: Any
) -> Any:
    """Around ``Scheduler.run_batch``: the forward stream is the current one."""
    ring = current_ring()
    if ring is None or ring.clock is None:
        return wrapped(*args, **kwargs)
    if not ring.watches:
        ring.clock.pause()
        return wrapped(*args, **kwargs)
    batch = kwargs["batch"] if "batch" in kwargs else args[0]
    decode = batch.forward_mode.is_decode()
    start = ring.clock.start()
    result = wrapped(*args, **kwargs)
    ring.clock.end(start, len(batch.reqs), decode, ring.laps.busy)
    return result
