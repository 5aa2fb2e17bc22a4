"""Paired ratios with a confidence interval. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

#: Two-sided 95 % quantiles of Student's t for 1, 2, ... degrees of freedom.
_T95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
_NORMAL95 = 1.960

#: Two arms whose mean number of requests differs by more are not compared.
LOAD_TOLERANCE = 0.1


@dataclass(frozen=True)
class Window:
    """One measurement under one policy.

    Attributes:
        policy: in force while it was measured.
        tok_s: output tokens a second.
        live: mean number of unfinished requests.
    """

    policy: str
    tok_s: float
    live: float


@dataclass(frozen=True)
class Comparison:
    """Pairs of windows, the baseline's first in each."""

    pairs: tuple[tuple[Window, Window], ...]

    @property
    def ratios(self) -> list[float]:
        """Throughput of the second over the first, pair by pair."""
        return [after.tok_s / before.tok_s for before, after in self.pairs]

    @property
    def ratio(self) -> float:
        """Geometric mean of the ratios."""
        return math.exp(fmean(map(math.log, self.ratios)))

    @property
    def ci95(self) -> tuple[float, float] | None:
        """95 % interval of the ratio (t distribution of the logarithms); None with
        fewer than two pairs."""
        logs = [math.log(ratio) for ratio in self.ratios]
        if len(logs) < 2:
            return None
        freedom = len(logs) - 1
        quantile = _T95[freedom - 1] if freedom <= len(_T95) else _NORMAL95
        half = quantile * stdev(logs) / math.sqrt(len(logs))
        middle = fmean(logs)
        return math.exp(middle - half), math.exp(middle + half)

    @property
    def loads_differ(self) -> bool:
        """Whether the two arms had too different a load to be compared."""
        before, after = (fmean(pair[arm].live for pair in self.pairs) for arm in (0, 1))
        return abs(after - before) > LOAD_TOLERANCE * max(before, after, 1e-9)

    def verdict(self) -> str:
        """One sentence that claims no more than the spread allows."""
        before, after = (window.policy for window in self.pairs[0])
        interval = self.ci95
        if self.loads_differ:
            return f"no claim: the load under {after} and under {before} differed"
        if interval is None:
            return "no claim: one pair has no spread; use --pairs 3 or more"
        low, high = interval
        text = f"{self.ratio:.3f} (95 % interval {low:.3f} to {high:.3f})"
        if low > 1:
            return f"{after} is faster than {before}: {text}"
        if high < 1:
            return f"{after} is slower than {before}: {text}"
        return f"no difference between {after} and {before} is shown: {text}"

    def to_json(self) -> dict[str, Any]:
        """Plain values, for ``--json``."""
        interval = self.ci95
        return {
            "schema_version": 1,
            "ratio": self.ratio,
            "ci95": None if interval is None else list(interval),
            "pairs": [
                {
                    "ratio": after.tok_s / before.tok_s,
                    "windows": [vars(before), vars(after)],
                }
                for before, after in self.pairs
            ],
            "loads_differ": self.loads_differ,
            "verdict": self.verdict(),
        }


def pair_up(windows: Sequence[Window]) -> Comparison:
    """Windows measured in turn, as pairs.

    Raises:
        ValueError: their number is odd, or a window saw no token.
    """
    if len(windows) % 2 or not windows:
        raise ValueError(f"{len(windows)} windows are no pairs")
    idle = next((window for window in windows if window.tok_s <= 0), None)
    if idle is not None:
        raise ValueError(f"no token was made in a window under {idle.policy}")
    return Comparison(tuple(zip(windows[::2], windows[1::2], strict=True)))
