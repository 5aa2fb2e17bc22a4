"""Micro-batch size from ``max_running_requests``, where the user gave none."""

import logging
from collections.abc import Callable
from typing import Any

from sglang_ppfix.compat import scheduler as compat
from sglang_ppfix.policy import derive_cap, stock_cap, target_slots
from sglang_ppfix.settings import Policy, Settings

logger = logging.getLogger(__name__)


def init_model_worker(settings: Settings) -> Callable[..., Any]:
    """Wrapper around ``Scheduler.init_model_worker``, which derives the cap."""

    def wrapper(
        wrapped: Callable[..., Any], scheduler: Any, args: Any, kwargs: Any
    ) -> Any:
        given = compat.read_cap()
        result = wrapped(*args, **kwargs)
        if scheduler.pp_group.world_size > 1 and not compat.out_of_scope(scheduler):
            _apply(scheduler, settings, given)
        return result

    return wrapper


def _apply(scheduler: Any, settings: Settings, given: int | None) -> None:
    rows = scheduler.max_running_requests
    stages = scheduler.pp_group.world_size
    depth = compat.async_batch_depth(scheduler)
    slots = target_slots(stages, depth, settings.slots)
    derived, stock = derive_cap(rows, slots), stock_cap(rows, stages)
    say = logger.info if compat.pp_rank(scheduler) == 0 else logger.debug
    warn = logger.warning if compat.pp_rank(scheduler) == 0 else logger.debug
    if given is not None:
        say("ppfix: pp_max_micro_batch_size=%d was given and is obeyed", given)
    elif settings.policy is not Policy.BALANCED:
        say(
            "ppfix: pp_max_micro_batch_size=%d (stock); policy balanced would take %d",
            stock,
            derived,
        )
    else:
        compat.write_cap(derived)
        say(
            "ppfix: pp_max_micro_batch_size=%d "
            "(max_running_requests=%d over %d slots, rounded up); stock takes %d",
            derived,
            rows,
            slots,
            stock,
        )
    if rows < stages + depth:
        warn(
            "ppfix: max_running_requests=%d is smaller than the %d slots of the ring: "
            "at least %d slots stay empty; raise --max-running-requests to %d or more",
            rows,
            stages + depth,
            stages + depth - rows,
            stages + depth,
        )
    if slots < stages + depth:
        warn(
            "ppfix: --pp-async-batch-depth %d makes %d slots, of which %d are filled: "
            "more than pp_size slots pay only while they hide latency; "
            "lower the depth, or set SGLANG_PPFIX_SLOTS",
            depth,
            stages + depth,
            slots,
        )
    elif given is None and settings.policy is not Policy.BALANCED and depth:
        warn(
            "ppfix: stock's pp_max_micro_batch_size=%d lets %d of %d slots take every "
            "row: --pp-async-batch-depth %d makes slots that cannot be filled",
            stock,
            -(-rows // stock),
            stages + depth,
            depth,
        )
