"""Time over a count: the building block of a profile. Seconds."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Curve(Protocol):
    """Seconds for ``count`` requests of a decode, or prompt tokens of a prefill."""

    def __call__(self, count: float) -> float: ...


@dataclass(frozen=True)
class Affine:
    """``base + slope * count``."""

    base: float
    slope: float = 0.0

    def __call__(self, count: float) -> float:
        return self.base + self.slope * count


@dataclass(frozen=True)
class Points:
    """Straight lines through measured points, the outer ones prolonged, never below 0.

    Attributes:
        counts: rising.
        seconds: one per count. A single point means a constant.
    """

    counts: tuple[float, ...]
    seconds: tuple[float, ...]

    @classmethod
    def of(cls, points: Sequence[tuple[float, float]]) -> "Points":
        """From ``(count, seconds)`` pairs in any order.

        Raises:
            ValueError: no point, or two with one count.
        """
        counts, seconds = zip(*sorted(points), strict=True) if points else ((), ())
        if not counts or len(set(counts)) < len(counts):
            raise ValueError("points need at least one pair, and each count once")
        return cls(tuple(map(float, counts)), tuple(map(float, seconds)))

    def __call__(self, count: float) -> float:
        if len(self.counts) == 1:
            return self.seconds[0]
        right = min(max(bisect_left(self.counts, count), 1), len(self.counts) - 1)
        x0, x1 = self.counts[right - 1], self.counts[right]
        y0, y1 = self.seconds[right - 1], self.seconds[right]
        return max(y0 + (y1 - y0) * (count - x0) / (x1 - x0), 0.0)


@dataclass(frozen=True)
class Experts:
    """A mixture of experts: time grows with the distinct experts touched.

    ``base + per_expert * E * (1 - (1 - k/E)^b) + per_token * b``: routed experts that
    ``b`` tokens touch in a layer if they choose independently and evenly. Real routing
    is skewed, so this is an upper estimate (docs/law.md).
    """

    base: float
    per_expert: float
    experts: int
    top_k: int
    per_token: float = 0.0

    def __call__(self, count: float) -> float:
        touched = distinct_experts(count, self.experts, self.top_k)
        return self.base + self.per_expert * touched + self.per_token * count

    @classmethod
    def through(
        cls,
        experts: int,
        top_k: int,
        low: tuple[float, float],
        high: tuple[float, float],
    ) -> "Experts":
        """The curve through two ``(batch size, seconds)`` points."""
        n0, n1 = (distinct_experts(b, experts, top_k) for b in (low[0], high[0]))
        per_expert = (high[1] - low[1]) / (n1 - n0)
        return cls(low[1] - per_expert * n0, per_expert, experts, top_k)


def distinct_experts(tokens: float, experts: int, top_k: int) -> float:
    """Distinct routed experts that ``tokens`` independent tokens touch in a layer."""
    return float(experts * (1.0 - (1.0 - top_k / experts) ** tokens))


@dataclass(frozen=True)
class Sum:
    """``factor * curve + extra``."""

    curve: Curve
    factor: float = 1.0
    extra: float = 0.0

    def __call__(self, count: float) -> float:
        return self.factor * self.curve(count) + self.extra
