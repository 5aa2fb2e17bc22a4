"""What no filling can beat: the law's lap time, for a burst that is spread evenly.

``T = max(max over stages of sum_i t(b_i), sum over stages of t(b_max) + P*hop)``
(``docs/law.md``). The bound holds stage time, hops and the prefill; it leaves out the
CPU time of the schedulers, HTTP and the prefill's way into the slots.
"""

from collections.abc import Callable, Sequence

from .stage_time import StageProfile, StageTime


def even_sizes(requests: int, slots: int) -> list[int]:
    """``requests`` spread over at most ``slots`` slots, sizes one apart."""
    filled = min(requests, slots)
    low, higher = divmod(requests, filled)
    return [low + 1] * higher + [low] * (filled - higher)


def lap_ms(
    profile: StageProfile,
    sizes: Sequence[int],
    time_ms: Callable[[StageTime, int], float],
) -> float:
    """Shortest lap in ms of slots that hold ``sizes``.

    Args:
        profile: the stages.
        sizes: requests of each filled slot.
        time_ms: time of one stage for a slot of that size.
    """
    occupancy = max(
        sum(time_ms(stage, size) for size in sizes) for stage in profile.stages
    )
    largest = max(sizes)
    latency = sum(time_ms(stage, largest) for stage in profile.stages)
    return max(occupancy, latency + len(profile.stages) * profile.hop_ms)


def bound_tok_s(
    profile: StageProfile,
    clients: int,
    slots: int,
    max_running_requests: int,
    prompt_tokens: float,
    output_tokens: float,
) -> float:
    """Most output tokens a second: one lap of prefill, then laps of decode.

    Args:
        profile: the stages.
        clients: requests in flight.
        slots: slots of the ring, ``L``; the best number of filled ones counts.
        max_running_requests: more clients than that wait.
        prompt_tokens: mean prompt length.
        output_tokens: mean output length; the first token comes from the prefill.
    """
    running = min(clients, max_running_requests)

    def seconds(filled: int) -> float:
        sizes = even_sizes(running, filled)
        prefill = lap_ms(profile, sizes, lambda s, b: s.prefill(b * prompt_tokens))
        decode = lap_ms(profile, sizes, lambda s, b: s.decode(b))
        return (prefill + (output_tokens - 1) * decode) / 1e3

    best = min(seconds(filled) for filled in range(1, slots + 1))
    return running * output_tokens / best
