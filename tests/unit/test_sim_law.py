"""The simulated ring against the law in closed form."""

import random

import pytest

from sglang_ppfix.sim.curve import Affine, Curve, Points, Sum
from sglang_ppfix.sim.law import held_back, lap_time
from sglang_ppfix.sim.profile import NO_CPU, Profile
from sglang_ppfix.sim.ring import steady_lap


def _random_ring(rng: random.Random, most_depth: int) -> tuple[int, list[int]]:
    stages = rng.randint(2, 8)
    slots = stages + rng.randint(0, most_depth)
    sizes = [
        rng.choice([0, rng.randint(1, 9), rng.randint(1, 9)]) for _ in range(slots)
    ]
    return stages, sizes if any(sizes) else [1] * slots


def _random_curve(rng: random.Random) -> Curve:
    if rng.random() < 0.5:
        return Affine(rng.uniform(0, 10e-3), rng.uniform(0, 3e-3))
    times = sorted(rng.uniform(1e-3, 30e-3) for _ in range(4))
    return Points.of(list(zip((1, 3, 6, 9), times, strict=True)))


def _profile(curves: tuple[Curve, ...], hop: float, back: float) -> Profile:
    return Profile("random", curves, curves, hop, back, NO_CPU)


def test_ideal_ring_keeps_the_law_on_2500_random_rings() -> None:
    """Uneven stages, any depth, holes, hops. Breaks when a stage starts too early or
    too late, when a slot is skipped, or when a jump over laps is not exact."""
    rng = random.Random(1)
    for _ in range(2500):
        stages, sizes = _random_ring(rng, most_depth=8)
        curve = _random_curve(rng)
        curves = tuple(Sum(curve, rng.uniform(0.5, 1.5)) for _ in range(stages))
        profile = _profile(curves, rng.uniform(0, 1e-3), rng.uniform(0, 2e-3))
        lap = steady_lap(profile, sizes, ideal=True)
        assert lap == pytest.approx(lap_time(profile, sizes), rel=1e-9)


def test_sglangs_loop_keeps_the_law_on_2500_random_rings() -> None:
    """Equal stages, no async depth, no latency: what SGLang's order of a turn waits for
    must not cost anything there. Breaks when a wait is added that SGLang has not."""
    rng = random.Random(2)
    for _ in range(2500):
        stages, sizes = _random_ring(rng, most_depth=0)
        profile = _profile((_random_curve(rng),) * stages, 0.0, 0.0)
        lap = steady_lap(profile, sizes)
        assert lap == pytest.approx(lap_time(profile, sizes), rel=1e-9)


def test_sglangs_loop_is_never_faster_than_the_law() -> None:
    """Breaks when a wait that SGLang has is forgotten: a result used too early."""
    rng = random.Random(3)
    for _ in range(500):
        stages, sizes = _random_ring(rng, most_depth=8)
        curves = tuple(_random_curve(rng) for _ in range(stages))
        profile = _profile(curves, rng.uniform(0, 1e-3), rng.uniform(0, 2e-3))
        assert steady_lap(profile, sizes) >= lap_time(profile, sizes) * (1 - 1e-9)


@pytest.mark.parametrize(("stages", "depth"), [(4, 1), (4, 4), (8, 2), (8, 8), (5, 3)])
def test_async_depth_stretches_the_lap(stages: int, depth: int) -> None:
    """The lab measured 4, 5, 6 and 8 stage times for 1, 2, 4 and 8 filled slots of
    PP4 with depth 4. Breaks when the output of a slot leaves the last stage, or when a
    turn launches, earlier than SGLang's loop lets it."""
    profile = _profile((Affine(10e-3),) * stages, 0.0, 0.0)
    for filled in range(1, stages + depth + 1):
        sizes = [1] * filled + [0] * (stages + depth - filled)
        stretched = stages + held_back(stages, depth, filled)
        expected = max(stretched, filled) * 10e-3
        assert steady_lap(profile, sizes) == pytest.approx(expected, rel=1e-9)


def test_plain_python_and_numba_agree_to_the_last_bit() -> None:
    """Breaks when the kernel uses something that Numba evaluates differently."""
    pytest.importorskip("numba")
    rng = random.Random(4)
    for _ in range(20):
        stages, sizes = _random_ring(rng, most_depth=3)
        curves = tuple(_random_curve(rng) for _ in range(stages))
        profile = Profile("random", curves, curves, 1e-4, 3e-4)
        plain = steady_lap(profile, sizes, compiled=False)
        assert plain == steady_lap(profile, sizes, compiled=True)
