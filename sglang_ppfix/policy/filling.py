"""How many requests a slot may hold now.

Slots are vessels, waiting requests are water: they level the least-filled slots
first. In a ring whose largest micro-batch sets the lap, the level is optimal, and
no slot is ever asked to hold more than ``ceil(demand / slots)``.
"""

from collections.abc import Sequence
from typing import NamedTuple


class TurnPlan(NamedTuple):
    """What a slot may do in its turn.

    Attributes:
        share: requests that the slot may hold now, new ones included. 0 in a slot
            that is not to be filled.
        live: unfinished requests in the whole ring, each once, a chunked prefill
            in progress included.
        admissible: waiting requests that the free rows could take.
        slots: slots that filling spreads over in this turn.
    """

    share: int
    live: int
    admissible: int
    slots: int


def plan_turn(
    occupancy: Sequence[int],
    slot: int,
    waiting: int,
    max_running_requests: int,
    slots: int,
    cap: int,
    chunk_in_progress: bool = False,
) -> TurnPlan:
    """Decide the share of ``slot`` from what is the same on every rank.

    Args:
        occupancy: unfinished requests per slot of the ring; prefills in flight are
            counted in the slot that will keep them, a chunked prefill in progress
            in none.
        slot: the slot whose turn it is.
        waiting: requests in the waiting queue.
        max_running_requests: requests that the rows of the rank can hold.
        slots: target slots, 1 to ``len(occupancy)``; widened when ``cap`` would
            leave rows that no target slot may use.
        cap: SGLang's ``pp_max_micro_batch_size``, at least 1.
        chunk_in_progress: whether a chunked prefill waits for its next chunk. It
            takes one place in the slot whose turn it is.
    """
    pending = 1 if chunk_in_progress else 0
    live = sum(occupancy) + pending
    admissible = max(min(waiting, max_running_requests - live), 0)
    slots = max(slots, min(-(-(live + admissible) // cap), len(occupancy)))
    if slot >= slots:
        return TurnPlan(0, live, admissible, slots)
    level, rest = water_level(occupancy[:slots], admissible + pending)
    share = level + 1 if rest and occupancy[slot] <= level else level
    return TurnPlan(max(share, 1), live, admissible, slots)


def water_level(occupancy: Sequence[int], poured: int) -> tuple[int, int]:
    """Level that ``poured`` requests reach over ``occupancy``, and what is left.

    Returns:
        ``(level, rest)``: filling every slot up to ``level`` takes all but ``rest``
        of the poured requests, and ``rest`` slots can be one higher.
    """
    below = 0
    total = 0
    ordered = sorted(occupancy)
    for below, held in enumerate(ordered):
        if held * below - total > poured:
            break
        total += held
    else:
        below = len(ordered)
    return divmod(total + poured, below)


def token_share(waiting_tokens: int, prefill_tokens: Sequence[int]) -> int:
    """Prompt tokens after which a slot's turn leaves the rest to the next slots.

    Prefill time is linear in tokens, and the slot with the most of them stretches
    the lap of all; the same prompts spread over the slots of one lap do not. A turn
    stops after the request that reaches the share, so a lone prompt is never cut,
    and the turns of one lap take every prompt.

    Args:
        waiting_tokens: tokens still to prefill of all admissible requests.
        prefill_tokens: tokens of the prefill in flight, per slot that is filled; 0
            for the slot whose turn it is.
    """
    level, rest = water_level(prefill_tokens, waiting_tokens)
    return level + (rest > 0)
