"""How many requests a slot may hold now.

Slots are vessels, waiting requests are water: they level the least-filled slots
first. In a ring whose largest micro-batch sets the lap, the level is optimal, and
no slot is ever asked to hold more than ``ceil(demand / slots)``.
"""

from collections.abc import Sequence
from typing import NamedTuple


class TurnPlan(NamedTuple):
    """What the slots may do in a turn.

    Attributes:
        shares: per slot, requests that it may hold now, new ones included. 0 in a
            slot that is not to be filled.
        live: unfinished requests in the whole ring, each once, a chunked prefill
            in progress included.
        free: rows that no live request has.
        admissible: waiting requests that the free rows could take.
        slots: slots that filling spreads over in this turn.
    """

    shares: tuple[int, ...]
    live: int
    free: int
    admissible: int
    slots: int


def plan_turn(
    occupancy: Sequence[int],
    waiting: int,
    max_running_requests: int,
    slots: int,
    cap: int,
) -> TurnPlan:
    """Decide the shares from what is the same on every rank.

    Args:
        occupancy: unfinished requests per slot of the ring, each in the slot that
            will keep it: prefills in flight in theirs, a chunked prefill in progress
            in the one in which it will land.
        waiting: requests in the waiting queue.
        max_running_requests: requests that the rows of the rank can hold.
        slots: target slots, 1 to ``len(occupancy)``; widened when ``cap`` would
            leave rows that no target slot may use.
        cap: SGLang's ``pp_max_micro_batch_size``, at least 1.
    """
    live = sum(occupancy)
    free = max(max_running_requests - live, 0)
    admissible = min(waiting, free)
    slots = max(slots, min(-(-(live + admissible) // cap), len(occupancy)))
    filled = occupancy[:slots]
    level, rest = water_level(filled, admissible)
    shares = [max(level + (rest > 0 and held <= level), 1) for held in filled]
    shares += [0] * (len(occupancy) - slots)
    return TurnPlan(tuple(shares), live, free, admissible, slots)


def turns_more(tokens: int, first: int, chunk: int) -> int:
    """Turns after the present one that a prefill will need.

    A chunk goes on in the next slot, so the request lands that many slots further on,
    and decodes there.

    Args:
        tokens: prompt tokens still to prefill.
        first: of them, those that the present turn can take.
        chunk: tokens of a later chunk, at least 1.
    """
    return max(-(-(tokens - first) // chunk), 0)


def good_starts(
    occupancy: Sequence[int], plan: TurnPlan, slot: int, more: int, cap: int
) -> list[int]:
    """Slots from which a prompt lands where there is room.

    Args:
        occupancy: as in :func:`plan_turn`, with what the turn took in already.
        plan: for ``occupancy`` and what is left of the queue.
        slot: the slot whose turn it is. It can start the prompt, or SGLang would not
            ask. Another that holds ``cap`` starts nothing, not even what would land
            elsewhere.
        more: turns that the prompt needs after the first one.
        cap: SGLang's ``pp_max_micro_batch_size``.
    """
    ring = len(occupancy)
    room = [occupancy[at] < min(plan.shares[at], cap) for at in range(ring)]
    starts = [at for at in range(ring) if at == slot or occupancy[at] < cap]
    return [at for at in starts if room[(at + more) % ring]]


def may_start(
    occupancy: Sequence[int], plan: TurnPlan, slot: int, starts: list[int], passed: int
) -> bool:
    """Whether a prompt may start in ``slot``: is there room where it will land?

    A prompt that is refused is passed on to a slot from which it lands well; that
    one's turn comes within a lap. Nobody overtakes it.

    Args:
        occupancy: as in :func:`plan_turn`, with what the turn took in already.
        plan: for ``occupancy`` and what is left of the queue.
        slot: the slot whose turn it is.
        starts: its :func:`good_starts`.
        passed: turns in a row that passed the head of the queue on.
    """
    if slot in starts:
        return True
    # Passed on for a whole lap: the slots do not mean the same one, or it cannot
    # start the prompt.
    if starts and passed < len(occupancy):
        return False
    # No slot that can start lands well. While few wait, one in six, they wait for one
    # that does, but not with half of the rows free. Else a slot that holds one or more
    # too many, as in SGLang, costs less.
    worth = plan.admissible * 5 >= plan.live or plan.free >= plan.live
    return occupancy[slot] < plan.shares[slot] and worth


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
