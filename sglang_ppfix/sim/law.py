"""The law of the ring in closed form (docs/law.md).

``T = max( max over stages of sum_i t(b_i), sum over stages of t(b_max) + hops )``.
Exact for a ring that passes data on as soon as it is there, with no CPU time and stages
whose times rise with ``b`` in the same way; a lower bound for SGLang's loop.
"""

from collections.abc import Sequence

from .profile import Profile


def lap_time(profile: Profile, sizes: Sequence[int]) -> float:
    """Seconds of one lap of steady decode.

    Args:
        profile: stage times and hops; its CPU times do not count.
        sizes: requests in each filled slot (empty slots do not count).
    """
    rows = [profile.row(size) for size in sizes if size]
    busiest: float = max(sum(times) for times in zip(*rows, strict=True))
    hops = (profile.pp_size - 1) * profile.hop + profile.way_back
    return max(busiest, max(sum(row) for row in rows) + hops)


def throughput(profile: Profile, sizes: Sequence[int]) -> float:
    """Tokens per second of steady decode."""
    return sum(sizes) / lap_time(profile, sizes)


def even_sizes(requests: int, slots: int) -> list[int]:
    """``requests`` dealt evenly over at most ``slots`` slots."""
    filled = min(requests, slots)
    each, rest = divmod(requests, filled)
    return [each + (slot < rest) for slot in range(filled)]


def greedy_sizes(requests: int, cap: int, slots: int) -> list[int]:
    """``requests`` as a burst fills stock's slots: to the cap, one after another."""
    sizes: list[int] = []
    while requests > 0 and len(sizes) < slots:
        sizes.append(min(requests, cap))
        requests -= sizes[-1]
    return sizes


def held_back(pp_size: int, async_depth: int, filled: int) -> int:
    """Stage times by which SGLang's loop stretches a lap with async depth.

    With depth a turn waits for the output of the next slot before it launches, and the
    last stage sends an output ``depth`` turns late, behind the hidden states that it
    receives in between. A ring of equal micro-batches in ``filled`` slots in a row
    takes ``pp_size + held_back(...)`` stage times, never less than ``filled``.
    Checked against the simulator and, for PP4, against real SGLang (docs/law.md).
    """
    if async_depth == 0 or filled < 2:
        return 0
    return max(1, min(filled - 2, async_depth))
