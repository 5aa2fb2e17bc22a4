"""A ring of given micro-batches, decoding for ever: what one lap takes."""

from collections.abc import Sequence

from .clock import RingClock
from .profile import Profile
from .server import Server

# A slot's slack is used up at the rate by which it is faster than the slowest cycle:
# that may take thousands of laps. Once a ring has settled, the clock jumps.
_LAPS = 20_000


def steady_lap(
    profile: Profile,
    sizes: Sequence[int],
    *,
    ideal: bool = False,
    compiled: bool | None = None,
) -> float:
    """Seconds of one lap once the ring has settled.

    Args:
        profile: stage, hop and CPU times.
        sizes: requests in every slot of the ring, 0 for an empty slot; more slots than
            stages mean async depth.
        ideal: data goes on as soon as it is there, no CPU.
        compiled: see :class:`RingClock`.
    """
    slots, ranks = len(sizes), profile.pp_size
    server = Server(ranks, slots - ranks, ideal_loop=ideal)
    clock = RingClock(profile, server, compiled)
    for size in sizes:
        clock.put(profile.row(size) if size else None)
        clock.run(1)
    clock.run(_LAPS * slots)
    begin = clock.now
    clock.run(_LAPS * slots)
    return (clock.now - begin) / _LAPS
