"""Advice: which settings are kept, by which goal, and in whose command."""

from itertools import pairwise
from pathlib import Path

import pytest
from advise_wishes import KIMI, LLAMA, QWEN, config_file, wish_for

from sglang_ppfix.sim.advice import advise
from sglang_ppfix.sim.advice_value import Choice, Figures, choice_of
from sglang_ppfix.sim.hardware import find_gpu, find_link


def test_what_gains_is_not_rejected(tmp_path: Path) -> None:
    """Async depth 1 gives 8 % more in the middle of its range and 4 % less at its end.
    Breaks when it is listed as wrong, or taken for sure."""
    wish = wish_for(
        config_file(tmp_path, QWEN),
        gpu=find_gpu("h100"),
        link=find_link("nvlink4"),
        prompt=512,
        output=512,
    )
    advice = advise(wish)
    (depth,) = advice.unsure
    assert depth.setting == "--pp-async-batch-depth 1"
    assert depth.gain is not None
    assert depth.gain > 0.05
    assert all((choice.gain_high or 0) < 0.01 for choice in advice.rejected)
    assert "depth" not in advice.commands[-1]
    assert any("Not sure on TP4 x PP2: async depth 1" in n for n in advice.notes)


def test_what_is_sure_to_gain_is_in_the_command(tmp_path: Path) -> None:
    """A small model on fast GPUs waits for its CPUs, and depth hides them. Breaks when
    depth is rejected in any case, or chosen without a trace in the command."""
    wish = wish_for(
        config_file(tmp_path, QWEN), gpu=find_gpu("h200"), gpus=2, clients=16
    )
    advice = advise(wish)
    assert advice.pipeline is not None
    assert advice.pipeline.depth == 1
    assert advice.choices[-1].setting == "--pp-async-batch-depth 1"
    assert advice.choices[-1].tok_s == advice.pipeline.tok_s
    assert "--pp-async-batch-depth 1" in advice.commands[-1]


def test_verdicts() -> None:
    """Breaks when a limit moves: a loss at one end is a doubt, no gain a rejection."""

    def choice(*gains: float) -> Choice:
        then = [Figures(100.0, 10.0)] * len(gains)
        now = [Figures(100.0 * (1 + gain), 10.0) for gain in gains]
        return choice_of("x", "", "throughput", now, then)

    assert choice(0.08, 0.02, 0.2).sure
    assert choice(0.08, -0.005, 0.2).sure
    for doubtful in (choice(0.08, -0.04, 0.22), choice(-0.02, -0.04, 0.05)):
        assert not doubtful.sure
        assert not doubtful.useless
    assert choice(0.0, -0.04, 0.005).useless


def test_latency_counts_time_per_token() -> None:
    """More tokens a second at more time per token: right for one goal, wrong for the
    other. Breaks when choices are valued by throughput whatever the goal."""
    then, now = [Figures(100.0, 10.0)], [Figures(120.0, 12.5)]
    assert choice_of("x", "", "throughput", now, then).gain == pytest.approx(0.2)
    assert choice_of("x", "", "latency", now, then).gain == pytest.approx(-0.2)


def test_the_goal_decides_on_the_chunk(tmp_path: Path) -> None:
    """Breaks when the chunk, or the gains shown, do not follow the goal."""
    machine = {"gpu": find_gpu("h200"), "gpus": 16, "link": find_link("ib400")}
    config = config_file(tmp_path, KIMI)
    chunks = {}
    for goal in ("throughput", "latency"):
        advice = advise(wish_for(config, prompt=2000, goal=goal, **machine))
        (mixed,) = (one for one in advice.layouts if one.name == "TP8 x PP2")
        chunks[goal] = mixed.chunk
    # The last advice: what was best for throughput was not even tried.
    assert not any("chunk" in one.what for one in mixed.rejected + mixed.unsure)
    times = [layout.figures.tpot_ms for layout in advice.layouts]
    assert times == sorted(times)
    steps = [pair for one in advice.layouts for pair in pairwise(one.choices)]
    assert steps
    for then, now in steps:
        assert now.gain == pytest.approx(then.tpot_ms / now.tpot_ms - 1, abs=1e-3)
    assert chunks == {"throughput": 1024, "latency": None}


def test_time_per_token_leaves_out_the_own_prompt(tmp_path: Path) -> None:
    """Tensor parallelism and pipelines by one definition. Breaks when a request's own
    prefill is counted into its time per token: two seconds over ten tokens here."""
    config = config_file(tmp_path, LLAMA)
    machine = {"gpu": find_gpu("h200"), "gpus": 2, "link": find_link("nvlink4")}
    advice = advise(wish_for(config, clients=1, prompt=30000, output=10, **machine))
    assert {layout.pp for layout in advice.layouts} == {1, 2}
    for layout in advice.layouts:
        # Reading the weights once, 70 GB a rank, takes 20 ms.
        per_stage = 20 if layout.pp == 1 else 40
        assert layout.figures.tpot_ms == pytest.approx(per_stage, rel=0.3)
        assert 1e3 / layout.tok_s > 2 * layout.figures.tpot_ms


def test_latency_needs_a_second_token(tmp_path: Path) -> None:
    """Breaks when a division by nothing is left to the simulator."""
    with pytest.raises(ValueError, match="--output-tokens 1: --goal latency"):
        wish_for(config_file(tmp_path, LLAMA), output=1, goal="latency")
    assert advise(wish_for(config_file(tmp_path, LLAMA), output=1, clients=2)).commands


def test_every_command_has_its_own_plugin(tmp_path: Path) -> None:
    """Four clients in four slots need even filling, in eight slots of one they do not.
    Breaks when one pipeline's worth decides for another's command."""
    advice = advise(wish_for(config_file(tmp_path, KIMI), clients=4))
    mixed, plain = advice.commands
    assert "--pp-size 4" in mixed
    assert "SGLANG_PPFIX=1" in mixed
    assert "--pp-size 8" in plain
    assert "SGLANG_PPFIX" not in plain
