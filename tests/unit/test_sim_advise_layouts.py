"""Advice: what starts, what fits, and what that leaves to the load."""

from pathlib import Path

import pytest
from advise_wishes import LLAMA, QWEN, config_file, wish_for

from sglang_ppfix.sim.advice import advise
from sglang_ppfix.sim.hardware import find_gpu, find_link
from sglang_ppfix.sim.layouts import candidates, server_for
from sglang_ppfix.sim.model_config import shape_of
from sglang_ppfix.sim.roofline import LayersCurve, kv_tokens
from sglang_ppfix.sim.server import default_chunk


def test_a_layout_that_does_not_start_is_not_proposed(tmp_path: Path) -> None:
    """SGLang asserts that the ranks divide 28 heads. Breaks when TP8 comes back, or
    goes without a word."""
    wish = wish_for(
        config_file(tmp_path, QWEN), gpu=find_gpu("h100"), link=find_link("nvlink4")
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
    config = config_file(tmp_path, {**QWEN, "num_hidden_layers": 1})
    with pytest.raises(ValueError, match="28 attention heads cannot be split over 8"):
        advise(wish_for(config))


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
    config = config_file(tmp_path, LLAMA)
    few, many = (
        advise(
            wish_for(
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
    config = config_file(tmp_path, LLAMA)
    machine = {"gpu": find_gpu("h100"), "link": find_link("nvlink4"), "gpus": 2}
    with pytest.raises(ValueError, match="longest request does not fit"):
        advise(wish_for(config, prompt=32768, **machine))


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
    wish = wish_for(config_file(tmp_path, QWEN), gpu=find_gpu(gpu))
    servers = [server_for(wish, one) for one in candidates(wish) if one.pp > 1]
    assert {server.chunked_prefill_size for server in servers} == {chunk}
