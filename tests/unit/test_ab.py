"""Paired comparison: what it may claim, and what it must not."""

import math
import random

import pytest

from sglang_ppfix.ab import Comparison, Window
from sglang_ppfix.ab.compare import pair_up


def pairs(ratios, live=(8.0, 8.0)):
    """A comparison with these ratios, the baseline at 100 tok/s."""
    return Comparison(
        tuple(
            (Window("stock", 100.0, live[0]), Window("balanced", 100.0 * r, live[1]))
            for r in ratios
        )
    )


def test_ratio_and_interval():
    """Catches an arithmetic mean of ratios, and a wrong quantile of t."""
    comparison = pairs([1.1, 1.21])
    assert comparison.ratio == pytest.approx(math.exp(math.log(1.1) * 1.5))
    low, high = comparison.ci95
    half = 12.706 * (math.log(1.21) - math.log(1.1)) / 2
    assert math.log(high / low) == pytest.approx(2 * half)


def test_the_interval_covers_the_truth_as_often_as_it_says():
    """Catches an interval that is too narrow for few pairs (normal in place of t)."""
    rng = random.Random(1)
    covered = 0
    for _ in range(2000):
        logs = [rng.gauss(math.log(1.3), 0.05) for _ in range(4)]
        low, high = pairs(map(math.exp, logs)).ci95
        covered += low <= 1.3 <= high
    assert 0.93 < covered / 2000 < 0.97


@pytest.mark.parametrize(
    ("ratios", "live", "words"),
    [
        ([1.3, 1.31, 1.29, 1.3], (8, 8), "balanced is faster than stock"),
        ([0.8, 0.81, 0.79, 0.8], (8, 8), "balanced is slower than stock"),
        ([1.1, 0.9, 1.05, 0.97], (8, 8), "no difference"),
        ([1.3], (8, 8), "one pair has no spread"),
        (
            [1.3, 1.31, 1.29],
            (8, 12),
            "the load under balanced and under stock differed",
        ),
    ],
)
def test_verdict_claims_what_the_spread_allows(ratios, live, words):
    """Catches a claim out of noise, one pair, or unequal load."""
    assert words in pairs(ratios, live).verdict()


def test_an_idle_window_is_no_measurement():
    """Catches a division by zero, or a ratio of infinity, on a server without load."""
    windows = [Window("stock", 0.0, 0.0), Window("balanced", 5.0, 1.0)]
    with pytest.raises(ValueError, match="no token was made in a window under stock"):
        pair_up(windows)
