"""Predictions: the published case, bounds, layer splits."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_ppfix.observe.diagnosis_law import (
    HEAD_SHARE,
    Anchor,
    even_sizes,
    experts_touched,
    lap_s,
    stage_curves,
    stretched_by_layers,
    throughput,
)
from sglang_ppfix.observe.diagnosis_layers import (
    default_partition,
    lighter_tail,
    model_facts,
)

#: Kimi K2.6 on 8 stages: 34.3 tok/s with one client, 248.1 with 32 in 4 slots of 8.
ALONE, LOADED, STAGES = 1 / 34.3, 32 / 248.1, 8
ANCHORS = (Anchor(1, ALONE / STAGES), Anchor(8, LOADED / STAGES))


def test_the_case_with_balanced_stages() -> None:
    """Fails if 8 slots of 4 are not predicted at 420 to 435 tok/s."""
    curves = stage_curves(ANCHORS, 384, 8)
    assert curves is not None
    low, high = (throughput(32, 8, c, STAGES) for c in (curves.slow, curves.fast))
    assert 420 <= low < high <= 435
    assert throughput(32, 4, curves.fast, STAGES) == pytest.approx(248.1)


def test_the_case_with_the_default_split() -> None:
    """Fails if the heavy last stage is not predicted to take it to 355 to 380."""
    curves = stage_curves(ANCHORS, 384, 8)
    assert curves is not None
    split = default_partition(61, STAGES)
    assert split == (7, 7, 7, 8, 8, 8, 8, 8)
    lap = lap_s([4] * 8, curves.fast, STAGES)
    rates = [32 / stretched_by_layers(lap, 8, split, h * ALONE) for h in HEAD_SHARE]
    assert 355 <= min(rates) < max(rates) <= 380.5


def test_uneven_layers_are_hidden_while_slots_are_empty() -> None:
    """Fails if a heavy stage costs anything in a ring that is mostly empty."""
    split = default_partition(61, STAGES)
    assert stretched_by_layers(0.1, 4, split, 0.001) == 0.1
    assert stretched_by_layers(0.1, 8, split, 0.001) > 0.104


def test_sixteen_slots_of_two_are_worse() -> None:
    """Fails if the fixed stage time is not paid once per slot."""
    curves = stage_curves(ANCHORS, 384, 8)
    assert curves is not None
    for curve in (curves.slow, curves.fast):
        sixteen = throughput(32, 16, curve, STAGES)
        assert 330 <= sixteen <= 365 < throughput(32, 8, curve, STAGES)


def test_without_the_experts_the_range_is_wider() -> None:
    """Fails if not knowing the model narrows the prediction."""
    known, unknown = (
        [throughput(32, 8, c, STAGES) for c in (found.slow, found.fast)]
        for found in (stage_curves(ANCHORS, 384, 8), stage_curves(ANCHORS, None, None))
        if found is not None
    )
    assert min(unknown) < min(known)
    assert max(unknown) > max(known)


def test_one_point_only_bounds() -> None:
    """Fails if one operating point pretends to know how stage time grows."""
    anchor = (Anchor(8, 0.016),)
    curves = stage_curves(anchor, None, None)
    assert curves is not None
    assert not curves.measured
    assert curves.slow(4) == pytest.approx(0.016)
    assert curves.fast(4) == pytest.approx(0.008)
    dense = stage_curves(anchor, None, None, dense=True)
    assert dense is not None
    assert throughput(32, 8, dense.fast, 8) < 1.06 * 32 / (8 * 0.016)
    assert stage_curves((), None, None) is None


@given(
    st.floats(0.001, 0.1),
    st.floats(0.0, 0.05),
    st.integers(2, 64),
    st.integers(2, 16),
    st.integers(1, 128),
)
def test_affine_stages_are_predicted_exactly(
    fixed: float, slope: float, size: int, stages: int, requests: int
) -> None:
    """Fails if the fast curve is not the straight line through both points."""
    anchors = [Anchor(b, fixed + slope * b) for b in (1, size)]
    curves = stage_curves(anchors, None, None)
    assert curves is not None
    sizes = even_sizes(requests, stages)
    assert sum(sizes) == requests
    assert max(sizes) - min(sizes) <= 1
    straight = lap_s(sizes, lambda b: fixed + slope * b, stages)
    if max(sizes) <= size:
        assert lap_s(sizes, curves.fast, stages) == pytest.approx(straight)
        assert lap_s(sizes, curves.slow, stages) >= straight * (1 - 1e-9)


@given(st.integers(1, 128), st.integers(2, 16))
def test_a_default_split_is_sglangs(layers: int, stages: int) -> None:
    """Fails if the remainder does not go to the last stages."""
    split = default_partition(layers, stages)
    assert sum(split) == layers
    assert list(split) == sorted(split)
    assert max(split) - min(split) <= 1


@given(st.integers(16, 128), st.integers(2, 16), st.floats(0, 4))
def test_a_lighter_tail_is_never_worse(layers: int, stages: int, head: float) -> None:
    """Fails if the advised split has a slower slowest stage than the default."""

    def slowest(split: tuple[int, ...]) -> float:
        return max(n + head * (i == stages - 1) for i, n in enumerate(split))

    advised = lighter_tail(layers, stages, head)
    assert sum(advised) == layers
    assert slowest(advised) <= slowest(default_partition(layers, stages)) + 1e-9


def test_the_advised_split_of_the_case() -> None:
    """Fails if the lighter tail is not put last."""
    assert lighter_tail(61, 8, 1.2) == (8, 8, 8, 8, 8, 8, 7, 6)


def test_experts_touched_is_the_published_formula() -> None:
    """Fails if the model of routing changes: E * (1 - (1 - k/E)^b)."""
    assert experts_touched(1, 384, 8) == pytest.approx(8)
    assert experts_touched(4, 384, 8) == pytest.approx(31.0, abs=0.05)
    assert experts_touched(8, 384, 8) == pytest.approx(59.5, abs=0.05)
    assert math.isclose(experts_touched(1e6, 384, 8), 384)


def test_model_facts_come_from_a_folder_or_a_name(tmp_path: Path) -> None:
    """Fails if a model's config.json is not preferred, or a bad one raises."""
    assert model_facts("moonshotai/Kimi-K2.6")[:3] == (61, 384, 8)
    assert model_facts("Qwen/Qwen3-32B")[:3] == (64, None, None)
    assert model_facts("nobody/unknown")[:3] == (None, None, None)
    config = {"text_config": {"num_hidden_layers": 5, "num_experts": 16}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert model_facts(str(tmp_path))[:3] == (5, 16, None)
    (tmp_path / "config.json").write_text("{")
    assert model_facts(str(tmp_path))[:3] == (None, None, None)
