"""Advice: from a model's shape and GPUs to a command line."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from advise_wishes import KIMI, LLAMA, config_file, wish_for

from sglang_ppfix.cli import main
from sglang_ppfix.sim.advice import Advice, advise
from sglang_ppfix.sim.advice_words import graph_sizes
from sglang_ppfix.sim.hardware import find_gpu, find_link
from sglang_ppfix.sim.model_config import ConfigError, read_config, shape_of
from sglang_ppfix.sim.partition import best_split


@pytest.fixture(scope="module")
def the_case(tmp_path_factory: pytest.TempPathFactory) -> Advice:
    """What is advised for the case of this project."""
    return advise(wish_for(config_file(tmp_path_factory.mktemp("case"), KIMI)))


def test_kimi_weighs_what_it_weighs(tmp_path: Path) -> None:
    """The checkpoint has 595 GB. Breaks when experts, their scales, MLA or the nested
    text_config are read wrongly."""
    model = read_config(config_file(tmp_path, KIMI))
    assert model.bytes == pytest.approx(595e9, rel=0.03)
    assert (model.experts, model.top_k, model.dense_layers) == (384, 8, 1)
    # MLA: 576 elements of 2 bytes in each of 61 layers, the same on every TP rank.
    assert model.kv == 576 * 2 * 61
    assert [model.kv_parts(tp) for tp in (1, 2, 8)] == [1, 1, 1]


def test_llama_has_70_billion_parameters() -> None:
    """Breaks when grouped-query attention or the dense feed-forward is miscounted."""
    model = shape_of(LLAMA, {})
    assert model.bytes == pytest.approx(2 * 70.6e9, rel=0.01)
    assert model.kv == 2 * 8 * 128 * 2 * 80
    assert not model.is_moe


def test_fp8_halves_the_weights_but_not_the_head() -> None:
    """Breaks when the quantisation is not read, or is applied to lm_head."""
    plain, packed = shape_of(LLAMA, {}), shape_of(LLAMA, {"quant_method": "fp8"})
    assert packed.layer_bytes(0) == pytest.approx(plain.layer_bytes(0) / 2)
    assert packed.head == plain.head


def test_the_head_lightens_the_tail() -> None:
    """61 equal layers and a head of one and a half: the split of the case. Breaks when
    the head is forgotten, or when another split with the same slowest stage is
    taken."""
    assert best_split([1.0] * 61, 8, 1.45) == (8, 8, 8, 8, 8, 8, 7, 6)
    assert best_split([1.0] * 61, 8, 0.0) == (8, 8, 8, 8, 8, 7, 7, 7)
    assert best_split([1.0] * 8, 8, 5.0) == (1,) * 8


def test_a_cheap_first_layer_is_counted() -> None:
    """Breaks when layers are taken for equal."""
    times = [0.1, 0.1, *[1.0] * 7]
    assert best_split(times, 3, 0.0) == (4, 3, 2)


def test_the_case_tp_wins_at_32_clients(the_case: Advice) -> None:
    """577.8 tok/s were reported; no pipeline comes near. Breaks when the report is not
    used, or when pipelines are overrated."""
    assert the_case.best.name == "TP8"
    assert the_case.best.tok_s == pytest.approx(577.8)
    assert the_case.best.reported
    assert any("TP8 wins at 32 clients: 577.8" in note for note in the_case.notes)
    assert "--tp-size 8" in the_case.commands[0]


def test_the_case_pipeline_gets_slots_layers_and_no_depth(the_case: Advice) -> None:
    """Breaks when a choice is lost, or comes out with the wrong sign."""
    advice = the_case
    assert advice.pipeline is not None
    assert advice.pipeline.name == "PP8"
    assert (advice.target_slots, advice.cap) == (8, 8)
    assert advice.graph_sizes == [1, 2, 3, 4, 5, 6, 7, 8]
    stock, even, layers = advice.choices
    assert even.setting == "SGLANG_PPFIX=1"
    assert layers.setting == "SGLANG_PP_LAYER_PARTITION=8,8,8,8,8,8,7,6"
    assert even.gain is not None
    assert even.gain > 0.2
    assert layers.gain_low is not None
    assert layers.gain_low > 0
    assert stock.gain is None
    assert advice.unsure == ()
    for rejected in advice.rejected:
        assert rejected.gain_high is not None
        assert rejected.gain_high < 0.01
    command = advice.commands[-1]
    assert "SGLANG_PP_LAYER_PARTITION=8,8,8,8,8,8,7,6" in command
    assert "--pp-size 8" in command
    assert "depth" not in command


def test_one_client_on_pcie_prefers_the_pipeline_that_was_reported(
    tmp_path: Path,
) -> None:
    """34.3 against 26.3 tok/s. Breaks when TP is taken for the better in any case."""
    advice = advise(wish_for(config_file(tmp_path, KIMI), clients=1))
    names = [layout.name for layout in advice.layouts]
    assert names.index("PP8") < names.index("TP8")


def test_long_prompts_get_a_chunk(tmp_path: Path) -> None:
    """A lone prefill stretches the lap of all slots. Breaks when the chunk is not
    looked at, or when it is advised although it does not help."""
    config = config_file(tmp_path, LLAMA)
    long = advise(wish_for(config, prompt=4000, link=find_link("pcie4")))
    assert long.chunk is not None
    assert long.choices[-1].setting == f"--chunked-prefill-size {long.chunk}"
    assert (long.choices[-1].gain or 0) > 0
    short = advise(wish_for(config, prompt=100, link=find_link("pcie4")))
    assert short.chunk is None


def test_a_flat_model_is_not_told_to_fill_evenly(tmp_path: Path) -> None:
    """Breaks when the plugin is advised where it is worth nothing."""
    advice = advise(
        wish_for(config_file(tmp_path, LLAMA), gpu=find_gpu("h200"), gpus=3)
    )
    assert "SGLANG_PPFIX" not in advice.commands[-1]
    assert any("Even filling is worth nothing" in note for note in advice.notes)


def test_the_release_of_the_graph_sizes_is_named(the_case: Advice) -> None:
    """0.5.13.post1 and older, which are supported, have another name for it. Breaks
    when the command is printed without a word on that."""
    assert "--cuda-graph-bs-decode" in the_case.commands[-1]
    (note,) = (note for note in the_case.notes if "--cuda-graph-bs-decode" in note)
    assert "0.5.14" in note
    assert note.endswith("--cuda-graph-bs.")


def test_what_does_not_fit_is_said(tmp_path: Path) -> None:
    """Breaks when memory is not looked at."""
    config = config_file(tmp_path, KIMI)
    with pytest.raises(ValueError, match="do not fit into 4 x 24 GiB"):
        advise(wish_for(config, gpu=find_gpu("rtx-4090"), gpus=4))


def test_graph_sizes_stop_at_the_cap() -> None:
    """A size above the cap can never run; the cap itself must be covered."""
    assert graph_sizes(4) == [1, 2, 3, 4]
    assert graph_sizes(30)[-1] == 32
    assert all(b - a <= 4 for a, b in pairwise(graph_sizes(64)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--gpu", "rtx-9090"], "--gpu rtx-9090: allowed are a100-40"),
        (["--link", "pcie9"], "--link pcie9: allowed are pcie3"),
        (["--config", "nowhere.json"], "--config nowhere.json: cannot be read"),
        (
            ["--json", "no/where.json"],
            "--json no/where.json: its folder does not exist",
        ),
    ],
)
def test_bad_values_are_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: list[str],
    message: str,
) -> None:
    """Breaks when a user's mistake ends in a traceback."""
    values = {
        "--config": str(config_file(tmp_path, KIMI)),
        "--gpu": "rtx-pro-6000",
        "--gpus": "8",
        "--link": "pcie5",
    }
    values[change[0]] = change[1]
    assert main(["advise", *(word for pair in values.items() for word in pair)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"hidden_size": "big"}', '{"hidden_size": 64}']
)
def test_bad_configs_are_refused(tmp_path: Path, text: str) -> None:
    """Breaks when a config without what a decoder needs gets through."""
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="--config"):
        read_config(path)


def test_json_on_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Breaks when anything but JSON is printed with ``--json``."""
    config = str(config_file(tmp_path, LLAMA))
    words = ["--config", config, "--gpu", "h100", "--gpus", "4", "--link", "nvlink4"]
    assert main(["advise", *words, "--clients", "8", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["best"] in {layout["name"] for layout in document["layouts"]}
    assert document["commands"]
