"""True totals: SGLang counts one slot where it should count the ring (issue 32158)."""

from collections.abc import Callable
from typing import Any

from .ring import current_ring

Wrapped = Callable[..., Any]


def get_loads(wrapped: Wrapped, inquirer: Any, args: Any, kwargs: Any) -> Any:
    """Around ``SchedulerLoadInquirer.get_loads``: what routers see in ``/v1/loads``."""
    snapshot = wrapped(*args, **kwargs)
    ring = current_ring()
    if ring is not None:
        snapshot.num_running_reqs = len(ring.occupants.all())
    return snapshot


def log_stats(wrapped: Wrapped, collector: Any, args: Any, kwargs: Any) -> Any:
    """Around ``SchedulerMetricsCollector.log_stats``: ``num_running_reqs``.

    Only for the time of the call: SGLang compares the stored value with one slot to
    see whether it is stale.
    """
    ring = current_ring()
    if ring is None:
        return wrapped(*args, **kwargs)
    stats = kwargs["stats"] if "stats" in kwargs else args[0]
    of_one_slot = stats.num_running_reqs
    stats.num_running_reqs = type(of_one_slot).from_reqs(
        ring.occupants.all(), ring.scheduler.enable_priority_scheduling
    )
    try:
        return wrapped(*args, **kwargs)
    finally:
        stats.num_running_reqs = of_one_slot
