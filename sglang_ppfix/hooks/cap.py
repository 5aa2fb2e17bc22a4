"""Micro-batch size from ``max_running_requests``, where the user gave none."""

import logging
from collections.abc import Callable
from typing import Any

from sglang_ppfix.compat import scheduler as compat
from sglang_ppfix.policy import derive_cap, stock_cap, target_slots
from sglang_ppfix.settings import Policy, Settings

logger = logging.getLogger(__name__)


class Cap:
    """The cap of one scheduler; a value that the user gave is never touched."""

    def __init__(self, rows: int, stages: int, given: bool) -> None:
        self.rows = rows
        self.stages = stages
        self.given = given
        self._ours = stock_cap(rows, stages)

    def wanted(self, policy: Policy, slots: int) -> int:
        """The cap that a policy derives for ``slots`` target slots."""
        if policy.balances:
            return derive_cap(self.rows, slots)
        return stock_cap(self.rows, self.stages)

    def is_given(self) -> bool:
        """Whether the user gave the cap, at start or since."""
        return self.given or compat.read_cap() != self._ours

    def follow(self, policy: Policy, slots: int) -> None:
        """Set the cap for a policy, unless the user gave one at start or since."""
        self.given = self.is_given()
        if self.given:
            return
        wanted = self.wanted(policy, slots)
        if wanted != self._ours:
            compat.write_cap(wanted)
            self._ours = wanted


_cap: Cap | None = None


def current_cap() -> Cap:
    """The cap of this process's scheduler.

    Raises:
        RuntimeError: ``init_model_worker`` has not run.
    """
    if _cap is None:
        raise RuntimeError("the scheduler has no cap yet")
    return _cap


def init_model_worker(settings: Settings) -> Callable[..., Any]:
    """Wrapper around ``Scheduler.init_model_worker``, which derives the cap."""

    def wrapper(
        wrapped: Callable[..., Any], scheduler: Any, args: Any, kwargs: Any
    ) -> Any:
        global _cap
        given = compat.given_cap(scheduler)
        result = wrapped(*args, **kwargs)
        stages = scheduler.pp_group.world_size
        _cap = Cap(scheduler.max_running_requests, stages, given is not None)
        if stages > 1 and not compat.out_of_scope(scheduler):
            depth = compat.async_batch_depth(scheduler)
            slots = target_slots(stages, depth, settings.slots)
            _cap.follow(settings.policy, slots)
            if compat.pp_rank(scheduler) == 0 and compat.tp_rank(scheduler) == 0:
                _explain(_cap, settings.policy, slots, depth)
        return result

    return wrapper


def _explain(cap: Cap, policy: Policy, slots: int, depth: int) -> None:
    ring = cap.stages + depth
    stock = stock_cap(cap.rows, cap.stages)
    if cap.given:
        logger.info(
            "ppfix: pp_max_micro_batch_size=%s was given and is obeyed",
            compat.read_cap(),
        )
    elif policy.balances:
        logger.info(
            "ppfix: pp_max_micro_batch_size=%d "
            "(max_running_requests=%d over %d slots, rounded up); stock takes %d",
            derive_cap(cap.rows, slots),
            cap.rows,
            slots,
            stock,
        )
    else:
        logger.info(
            "ppfix: pp_max_micro_batch_size=%d (stock); policy balanced would take %d",
            stock,
            derive_cap(cap.rows, slots),
        )
    if cap.rows < ring:
        logger.warning(
            "ppfix: max_running_requests=%d is smaller than the %d slots of the ring: "
            "%d slots stay empty; raise --max-running-requests to %d or more",
            cap.rows,
            ring,
            ring - cap.rows,
            ring,
        )
    if policy.balances and depth:
        logger.warning(
            "ppfix: --pp-async-batch-depth %d: %d of the ring's %d slots are filled, "
            "and a lap takes up to %d stage times instead of %d; for decode leave it "
            "at 0",
            depth,
            slots,
            ring,
            max(slots, cap.stages + min(max(slots - 2, 1), depth)),
            cap.stages,
        )
    fillable = -(-cap.rows // stock)
    if not policy.balances and not cap.given and fillable < ring:
        logger.warning(
            "ppfix: stock's pp_max_micro_batch_size=%d lets %d slots take every row: "
            "--pp-async-batch-depth %d makes %d slots that cannot be filled",
            stock,
            fillable,
            depth,
            ring - fillable,
        )
