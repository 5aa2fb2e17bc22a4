"""Layers per stage: the split whose slowest stage is fastest."""

from collections.abc import Sequence
from functools import cache
from itertools import accumulate


def best_split(
    layer_times: Sequence[float], stages: int, head: float
) -> tuple[int, ...]:
    """Layers of each stage for ``SGLANG_PP_LAYER_PARTITION``.

    Args:
        layer_times: seconds of every layer, in order.
        stages: pipeline stages, at most one per layer.
        head: seconds that the last stage needs on top.

    Returns:
        One count per stage. Of all splits with the fastest slowest stage, the most
        even; of those alike, the one with more layers in the first stages.
    """
    before = [0.0, *accumulate(layer_times)]
    layers = len(layer_times)
    fastest = _slowest_stage(before, layers, stages, head)

    @cache
    def rest(stage: int, first: int) -> tuple[float, tuple[int, ...]]:
        """Least sum of squared stage times from ``stage`` on, and its counts."""
        if stage == stages - 1:
            time = before[layers] - before[first] + head
            if first < layers and time <= fastest:
                return time * time, (layers - first,)
            return float("inf"), ()
        best: tuple[float, tuple[int, ...]] = (float("inf"), ())
        for last in range(layers - (stages - stage - 1), first, -1):
            time = before[last] - before[first]
            if time > fastest:
                continue
            squares, counts = rest(stage + 1, last)
            # The longer first stage is tried first: it wins where the rest is alike.
            if squares + time * time < best[0] * (1 - 1e-12):
                best = squares + time * time, (last - first, *counts)
        return best

    return rest(0, 0)[1]


def _slowest_stage(
    before: Sequence[float], layers: int, stages: int, head: float
) -> float:
    """Time of the slowest stage in the best split, and a little room for rounding."""

    @cache
    def least(stage: int, first: int) -> float:
        if stage == stages - 1:
            return before[layers] - before[first] + head
        return min(
            max(before[last] - before[first], least(stage + 1, last))
            for last in range(first + 1, layers - (stages - stage - 1) + 1)
        )

    return least(0, 0) * (1 + 1e-12)
