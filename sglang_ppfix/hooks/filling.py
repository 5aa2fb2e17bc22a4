"""Staggered filling: the share limits what a slot takes in during its turn."""

from collections.abc import Callable
from typing import Any

from sglang_ppfix.compat import scheduler as compat
from sglang_ppfix.policy import good_starts, may_start

from . import landing
from .ring import Ring, current_ring
from .turn import Turn

Wrapped = Callable[..., Any]


def get_next_batch_to_run(
    wrapped: Wrapped, scheduler: Any, args: Any, kwargs: Any
) -> Any:
    """Around ``Scheduler.get_next_batch_to_run``: once per loop iteration."""
    ring = current_ring()
    if ring is None:
        return wrapped(*args, **kwargs)
    ring.begin_iteration()
    result = wrapped(*args, **kwargs)
    ring.end_iteration(compat.batch_to_run(result))
    return result


def get_new_batch_prefill_raw(
    wrapped: Wrapped, scheduler: Any, args: Any, kwargs: Any
) -> Any:
    """Around ``Scheduler._get_new_batch_prefill_raw``: the turn to take in requests."""
    ring = current_ring()
    if ring is None or not ring.watches:
        return wrapped(*args, **kwargs)
    turn = ring.begin_turn(compat.running_batch(scheduler, args, kwargs))
    try:
        result = wrapped(*args, **kwargs)
    finally:
        ring.turn = None
    ring.log.end_turn(turn, compat.new_batch(result))
    return result


def add_one_req(wrapped: Wrapped, adder: Any, args: Any, kwargs: Any) -> Any:
    """Around ``PrefillAdder.add_one_req``: may this turn take one more?

    ``OTHER`` ends the turn without latching the slot; stock answers the same when
    ``--prefill-max-requests`` is reached. A prompt that will be cut into chunks asks
    the slot in which it will land, and counts there.
    """
    ring = current_ring()
    if ring is None or ring.turn is None:
        return wrapped(*args, **kwargs)
    turn = ring.turn
    req = args[0] if args else kwargs["req"]
    more = landing.turns_after(ring.scheduler, turn, adder, req)
    # A running request that priority just preempted must not lose its place to
    # nobody: the one it made room for goes in.
    if ring.balances and not adder.preempt_list:
        if not _starts(ring, turn, more):
            turn.refusal = "share"
        elif adder.can_run_list and adder.log_input_tokens >= ring.token_share(turn):
            turn.refusal = "token share"
        if turn.refusal is not None:
            from sglang.srt.managers.schedule_policy import AddReqResult

            return AddReqResult.OTHER
    result = wrapped(*args, **kwargs)
    if adder.can_run_list and adder.can_run_list[-1] is req:
        # The next request of this turn sees it where it will be.
        lands = turn.slot + (more if adder.new_chunked_req is req else 0)
        turn.occupancy[lands % ring.length] += 1
    if result.name == "NO_TOKEN":
        turn.refusal = "tokens"
    elif result.name == "OTHER":
        turn.refusal = "prefill budget"
    return result


def _starts(ring: Ring, turn: Turn, more: int) -> bool:
    """Whether the slot takes the head of the queue, and does not pass it on."""
    plan = ring.plan_rest(turn)
    starts = good_starts(turn.occupancy, plan, turn.slot, more, turn.cap)
    if may_start(turn.occupancy, plan, turn.slot, starts, ring.passed):
        ring.passed = 0
        return True
    if starts and not ring.taken(turn):
        ring.passed += 1
    return False
