"""Models and wishes that tests ask advice for."""

import json
from pathlib import Path

from sglang_ppfix.sim.hardware import find_gpu, find_link
from sglang_ppfix.sim.layouts import Wish
from sglang_ppfix.sim.model_config import read_config

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


def config_file(folder: Path, content: object) -> Path:
    """A config.json of ``content`` in ``folder``."""
    path = folder / "config.json"
    path.write_text(json.dumps(content))
    return path


def wish_for(path: Path, **changes: object) -> Wish:
    """The case's machine and load for the model at ``path``, and what differs."""
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
