"""Decisions without a clock: requests are given by the turn that takes them in.

With the turns of a real server's arrivals, its admissions must come out one by one:
which slot takes which request in which turn depends on nothing else.
"""

from collections.abc import Sequence

from .request import Request
from .scheduler import Scheduler

Admission = tuple[int, int, list[int]]
"""(turn, slot, rids)"""


def replay(
    scheduler: Scheduler, arrivals: Sequence[tuple[int, Request]]
) -> list[Admission]:
    """Admissions that follow from arrivals.

    Args:
        scheduler: fresh; decides.
        arrivals: (turn that takes the request in, request), turns rising.

    Returns:
        One entry per prefill forward, chunks included.
    """
    scheduler.admissions = []
    pending = list(reversed(arrivals))
    turn = arrivals[0][0] if arrivals else 0
    length = len(scheduler.slots)
    while pending or scheduler.live or scheduler.waiting:
        if not scheduler.live and not scheduler.waiting:
            turn = max(turn, pending[-1][0])
        while pending and pending[-1][0] <= turn:
            scheduler.arrive(pending.pop()[1])
        scheduler.turn(turn % length, turn)
        turn += 1
        if scheduler.slots[turn % length].alarm == turn:
            scheduler.result(turn % length, turn, float(turn))
    return scheduler.admissions
