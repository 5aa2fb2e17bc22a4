"""Model shapes, as the ``config.json`` that SGLang reads; weights are dummies."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_COMMON: dict[str, Any] = {
    "num_attention_heads": 32,
    "head_dim": 128,
    "vocab_size": 32000,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "rope_scaling": None,
    "use_cache": True,
    "initializer_range": 0.02,
}


@dataclass(frozen=True)
class Shape:
    """A model without weights.

    Attributes:
        name: of the shape.
        says: what it stands for, for the report.
        config: content of ``config.json``.
    """

    name: str
    says: str
    config: dict[str, Any]

    def write(self, folder: Path) -> None:
        """Make ``folder`` a model folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))

    def short(self) -> dict[str, Any]:
        """The figures of the shape that decide about stage time."""
        keys = (
            *("num_hidden_layers", "hidden_size", "intermediate_size"),
            *("moe_intermediate_size", "num_experts", "num_experts_per_tok"),
            *("num_attention_heads", "num_key_value_heads"),
        )
        return {key: self.config[key] for key in keys if key in self.config}


def _moe(
    name: str, says: str, layers: int, hidden: int, inner: int, experts: int
) -> Shape:
    config = {
        **_COMMON,
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": 6144,
        "moe_intermediate_size": inner,
        "num_experts": experts,
        "num_experts_per_tok": 8,
        "num_key_value_heads": 4,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "use_sliding_window": False,
        "sliding_window": None,
        "max_window_layers": 48,
        "router_aux_loss_coef": 0.001,
        "output_router_logits": False,
    }
    return Shape(name, says, config)


def _dense(name: str, says: str, layers: int, hidden: int, inner: int) -> Shape:
    config = {
        **_COMMON,
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_attention_heads": hidden // 128,
        "num_key_value_heads": 8,
    }
    return Shape(name, says, config)


SHAPES = {
    shape.name: shape
    for shape in (
        _moe("steep", "MoE, 128 experts top-8, steep in b", 12, 4096, 3072, 128),
        _moe("steep16", "MoE, 128 experts top-8, lighter layers", 16, 4096, 2048, 128),
        _moe("kimi", "MoE, 384 experts top-8, as Kimi K2", 12, 3584, 1024, 384),
        _dense("dense", "dense, layers of a Llama 70B, flat in b", 48, 8192, 28672),
    )
}
