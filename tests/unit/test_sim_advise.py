"""Advice: from a model's shape and GPUs to a command line."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from sglang_ppfix.cli import main
from sglang_ppfix.sim.advice import Advice, advise
from sglang_ppfix.sim.advice_value import Choice, Figures, choice_of
from sglang_ppfix.sim.advice_words import graph_sizes
from sglang_ppfix.sim.hardware import find_gpu, find_link
from sglang_ppfix.sim.layouts import Wish, candidates, server_for
from sglang_ppfix.sim.model_config import ConfigError, read_config, shape_of
from sglang_ppfix.sim.partition import best_split
from sglang_ppfix.sim.roofline import LayersCurve, kv_tokens
from sglang_ppfix.sim.server import default_chunk

KIMI = {
    "model_type": "kimi_k25",
    "text_config": {
        "model_type": "kimi_k2",
        "hidden_size": 7168,
        "num_hidden_layers": 61,
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "vocab_size": 163840,
        "intermediate_size": 18432,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 384,
        "num_experts_per_tok": 8,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "torch_dtype": "bfloat16",
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "config_groups": {
                "group_0": {"weights": {"num_bits": 4, "group_size": 32}}
            },
            "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp.*"],
        },
    },
}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "intermediate_size": 28672,
    "torch_dtype": "bfloat16",
}
# Qwen2.5-7B: 28 heads and 4 KV heads.
QWEN = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "intermediate_size": 18944,
    "torch_dtype": "bfloat16",
}


def _config(folder: Path, content: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(content))
    return path


def _wish(path: Path, **changes: object) -> Wish:
    values: dict[str, object] = {
        "model": read_config(path),
        "gpu": find_gpu("rtx-pro-6000"),
        "gpus": 8,
        "link": find_link("pcie5"),
        "clients": 32,
        "prompt": 128,
        "output": 256,
    }
    return Wish(**{**values, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def the_case(tmp_path_factory: pytest.TempPathFactory) -> Advice:
    """What is advised for the case of this project."""
    return advise(_wish(_config(tmp_path_factory.mktemp("case"), KIMI)))


def test_kimi_weighs_what_it_weighs(tmp_path: Path) -> None:
    """The checkpoint has 595 GB. Breaks when experts, their scales, MLA or the nested
    text_config are read wrongly."""
    model = read_config(_config(tmp_path, KIMI))
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
    advice = advise(_wish(_config(tmp_path, KIMI), clients=1))
    names = [layout.name for layout in advice.layouts]
    assert names.index("PP8") < names.index("TP8")


def test_long_prompts_get_a_chunk(tmp_path: Path) -> None:
    """A lone prefill stretches the lap of all slots. Breaks when the chunk is not
    looked at, or when it is advised although it does not help."""
    config = _config(tmp_path, LLAMA)
    long = advise(_wish(config, prompt=4000, link=find_link("pcie4")))
    assert long.chunk is not None
    assert long.choices[-1].setting == f"--chunked-prefill-size {long.chunk}"
    assert (long.choices[-1].gain or 0) > 0
    short = advise(_wish(config, prompt=100, link=find_link("pcie4")))
    assert short.chunk is None


def test_a_flat_model_is_not_told_to_fill_evenly(tmp_path: Path) -> None:
    """Breaks when the plugin is advised where it is worth nothing."""
    advice = advise(_wish(_config(tmp_path, LLAMA), gpu=find_gpu("h200"), gpus=3))
    assert "SGLANG_PPFIX" not in advice.commands[-1]
    assert any("Even filling is worth nothing" in note for note in advice.notes)


def test_a_layout_that_does_not_start_is_not_proposed(tmp_path: Path) -> None:
    """SGLang asserts that the ranks divide 28 heads. Breaks when TP8 comes back, or
    goes without a word."""
    wish = _wish(
        _config(tmp_path, QWEN), gpu=find_gpu("h100"), link=find_link("nvlink4")
    )
    advice = advise(wish)
    assert {layout.tp for layout in advice.layouts} == {4, 2, 1}
    assert not any("--tp-size 8" in command for command in advice.commands)
    assert any("TP8 does not start: 28 attention heads" in n for n in advice.notes)


def test_what_ranks_cannot_divide() -> None:
    """Breaks when KV heads, or blocks of FP8 weights, are not looked at: SGLang refuses
    experts of 1536 over 8 ranks, 192 is no multiple of the block of 128."""
    qwen = shape_of(QWEN, {})
    assert [tp for tp in (1, 2, 4, 8) if qwen.refusal(tp) is None] == [1, 2, 4]
    odd = shape_of({**LLAMA, "num_key_value_heads": 6}, {})
    assert "6 KV heads" in (odd.refusal(4) or "")
    experts = {**LLAMA, "num_experts": 128, "moe_intermediate_size": 1536}
    blocks = shape_of(experts, {"quant_method": "fp8", "weight_block_size": [128, 128]})
    assert "12 blocks" in (blocks.refusal(8) or "")
    assert blocks.refusal(4) is None
    assert shape_of(experts, {}).refusal(8) is None


def test_nothing_starts_is_said(tmp_path: Path) -> None:
    """Breaks when the user is told that memory is what is missing."""
    config = _config(tmp_path, {**QWEN, "num_hidden_layers": 1})
    with pytest.raises(ValueError, match="28 attention heads cannot be split over 8"):
        advise(_wish(config))


def test_kv_heads_are_copied_beyond_their_number() -> None:
    """4 KV heads on 8 ranks: every rank keeps a whole one. Breaks when the KV is
    divided by the ranks, in the size of the pool or in the time to read it."""
    model = shape_of({**LLAMA, "num_key_value_heads": 4}, {})
    gpu, link = find_gpu("h200"), find_link("nvlink4")
    for tp in (4, 8):
        free = 0.88 * gpu.memory - model.bytes / tp
        tokens = kv_tokens(model, gpu, (80,), tp)
        assert tokens == pytest.approx(free / (model.kv / 4), rel=1e-6)

    def kv_time(tp: int) -> float:
        near, far = (
            LayersCurve(model, gpu, link, tp, 80, 0, context)(8)
            for context in (1e4, 1e5)
        )
        return far - near

    assert kv_time(8) == pytest.approx(kv_time(4))
    assert kv_time(4) == pytest.approx(kv_time(1) / 4)


def test_the_kv_pool_bounds_the_requests_in_flight(tmp_path: Path) -> None:
    """TP2 holds 30,755 tokens: six of 64 requests run at a time. Breaks when 64 are
    taken to run, which gives four times the figure, by formula or by simulation."""
    config = _config(tmp_path, LLAMA)
    few, many = (
        advise(
            _wish(
                config,
                gpu=find_gpu("h100"),
                link=find_link("nvlink4"),
                gpus=2,
                clients=clients,
                prompt=4096,
                output=1024,
            )
        )
        for clients in (6, 64)
    )
    by_name = {layout.name: layout for layout in few.layouts}
    for layout in many.layouts:
        assert layout.kv_tokens == pytest.approx(30755, rel=0.01)
        assert layout.tok_s < 1.25 * by_name[layout.name].tok_s
        if layout.pp > 1:
            assert server_for(many.wish, layout).kv_tokens == layout.kv_tokens
    tensor = next(layout for layout in many.layouts if layout.pp == 1)
    assert tensor.tok_s == by_name["TP2"].tok_s
    assert any("about 6 requests run" in note for note in many.notes)


def test_a_request_longer_than_the_pool_is_said(tmp_path: Path) -> None:
    """Breaks when such a request ends in the middle of a simulation, or a layout that
    cannot hold it is proposed."""
    config = _config(tmp_path, LLAMA)
    machine = {"gpu": find_gpu("h100"), "link": find_link("nvlink4"), "gpus": 2}
    with pytest.raises(ValueError, match="longest request does not fit"):
        advise(_wish(config, prompt=32768, **machine))


def test_what_gains_is_not_rejected(tmp_path: Path) -> None:
    """Async depth 1 gives 8 % more in the middle of its range and 4 % less at its end.
    Breaks when it is listed as wrong, or taken for sure."""
    wish = _wish(
        _config(tmp_path, QWEN),
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
    wish = _wish(_config(tmp_path, QWEN), gpu=find_gpu("h200"), gpus=2, clients=16)
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
    config = _config(tmp_path, KIMI)
    chunks = {}
    for goal in ("throughput", "latency"):
        advice = advise(_wish(config, prompt=2000, goal=goal, **machine))
        (mixed,) = (one for one in advice.layouts if one.name == "TP8 x PP2")
        chunks[goal] = mixed.chunk
        times = [layout.figures.tpot_ms for layout in advice.layouts]
        assert goal == "throughput" or times == sorted(times)
    assert chunks == {"throughput": 1024, "latency": None}


def test_time_per_token_leaves_out_the_own_prompt(tmp_path: Path) -> None:
    """Tensor parallelism and pipelines by one definition. Breaks when a request's own
    prefill is counted into its time per token: two seconds over ten tokens here."""
    config = _config(tmp_path, LLAMA)
    machine = {"gpu": find_gpu("h200"), "gpus": 2, "link": find_link("nvlink4")}
    advice = advise(_wish(config, clients=1, prompt=30000, output=10, **machine))
    assert {layout.pp for layout in advice.layouts} == {1, 2}
    for layout in advice.layouts:
        # Reading the weights once, 70 GB a rank, takes 20 ms.
        per_stage = 20 if layout.pp == 1 else 40
        assert layout.figures.tpot_ms == pytest.approx(per_stage, rel=0.3)
        assert 1e3 / layout.tok_s > 2 * layout.figures.tpot_ms


def test_latency_needs_a_second_token(tmp_path: Path) -> None:
    """Breaks when a division by nothing is left to the simulator."""
    with pytest.raises(ValueError, match="--output-tokens 1: --goal latency"):
        _wish(_config(tmp_path, LLAMA), output=1, goal="latency")
    assert advise(_wish(_config(tmp_path, LLAMA), output=1, clients=2)).commands


@pytest.mark.parametrize(
    ("gpu", "chunk"),
    [
        ("rtx-2080ti", 2048),
        ("rtx-4090", 4096),
        ("a100-40", 4096),
        ("h100", 8192),
        ("h200", 8192),
        ("b200", 16384),
    ],
)
def test_the_chunk_that_sglang_sets(tmp_path: Path, gpu: str, chunk: int) -> None:
    """SGLang 0.5.23's ``memory_hook.py``. Breaks when another chunk is simulated than
    the server will have."""
    assert default_chunk(find_gpu(gpu).memory) == chunk
    wish = _wish(_config(tmp_path, QWEN), gpu=find_gpu(gpu))
    servers = [server_for(wish, one) for one in candidates(wish) if one.pp > 1]
    assert {server.chunked_prefill_size for server in servers} == {chunk}


def test_every_command_has_its_own_plugin(tmp_path: Path) -> None:
    """Four clients in four slots need even filling, in eight slots of one they do not.
    Breaks when one pipeline's worth decides for another's command."""
    advice = advise(_wish(_config(tmp_path, KIMI), clients=4))
    mixed, plain = advice.commands
    assert "--pp-size 4" in mixed
    assert "SGLANG_PPFIX=1" in mixed
    assert "--pp-size 8" in plain
    assert "SGLANG_PPFIX" not in plain


def test_the_release_of_the_graph_sizes_is_named(the_case: Advice) -> None:
    """0.5.13.post1 and older, which are supported, have another name for it. Breaks
    when the command is printed without a word on that."""
    assert "--cuda-graph-bs-decode" in the_case.commands[-1]
    (note,) = (note for note in the_case.notes if "--cuda-graph-bs-decode" in note)
    assert "0.5.14" in note
    assert note.endswith("--cuda-graph-bs.")


def test_what_does_not_fit_is_said(tmp_path: Path) -> None:
    """Breaks when memory is not looked at."""
    config = _config(tmp_path, KIMI)
    with pytest.raises(ValueError, match="do not fit into 4 x 24 GiB"):
        advise(_wish(config, gpu=find_gpu("rtx-4090"), gpus=4))


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
        "--config": str(_config(tmp_path, KIMI)),
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
    config = str(_config(tmp_path, LLAMA))
    words = ["--config", config, "--gpu", "h100", "--gpus", "4", "--link", "nvlink4"]
    assert main(["advise", *words, "--clients", "8", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["best"] in {layout["name"] for layout in document["layouts"]}
    assert document["commands"]
