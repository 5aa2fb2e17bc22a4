"""A model's shape out of the ``config.json`` of Hugging Face."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .model_shape import ModelShape


class ConfigError(ValueError):
    """A config.json that cannot be used; the text names it and says why."""


def read_config(path: Path) -> ModelShape:
    """The shape of a model.

    Args:
        path: ``config.json``, or the folder that holds it.

    Raises:
        ConfigError: unreadable, not JSON, or without what a decoder needs.
    """
    path = path / "config.json" if path.is_dir() else path
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"--config {path}: cannot be read: {error.strerror}"
        ) from None
    except ValueError as error:
        raise ConfigError(f"--config {path}: not JSON: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"--config {path}: allowed is a JSON object")
    # Multimodal models nest their language model.
    config = content.get("text_config") or content.get("language_config") or content
    quantization = (
        config.get("quantization_config") or content.get("quantization_config") or {}
    )
    needed = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    missing = [key for key in needed if not _is_count(config.get(key))]
    if missing:
        raise ConfigError(
            f"--config {path}: needs {', '.join(missing)} (whole numbers from 1)"
        )
    return shape_of(config, quantization)


def shape_of(config: Mapping[str, Any], quantization: Mapping[str, Any]) -> ModelShape:
    """The shape that a configuration describes."""
    hidden, layers = int(config["hidden_size"]), int(config["num_hidden_layers"])
    plain = 4.0 if "float32" in str(_dtype(config)) else 2.0
    packed = _bytes_per_weight(quantization, plain)
    ignored = str(
        quantization.get("ignore") or quantization.get("modules_to_not_convert")
    )

    def width(part: str) -> float:
        return plain if part in ignored else packed

    experts = _first(config, "n_routed_experts", "num_local_experts", "num_experts")
    top_k = _first(config, "num_experts_per_tok", "num_experts_per_token", "moe_topk")
    moe_width = _first(config, "moe_intermediate_size") or _first(
        config, "intermediate_size"
    )
    shared_width = _first(config, "shared_expert_intermediate_size") or (
        _first(config, "n_shared_experts") * moe_width
    )
    dense_layers = layers
    if experts:
        dense_layers = _first(config, "first_k_dense_replace")
    attention, kv, kv_heads = _attention(config, hidden)
    dense_width = _first(config, "intermediate_size") if dense_layers else 0
    dense = 3 * hidden * dense_width
    expert = 3 * hidden * moe_width if experts else 0
    shared = 3 * hidden * shared_width if experts else 0
    active = layers * attention + dense_layers * dense
    active += (layers - dense_layers) * (top_k * expert + shared)
    head = hidden * int(config["vocab_size"])
    return ModelShape(
        name=str(config.get("model_type", "model")),
        layers=layers,
        dense_layers=dense_layers,
        hidden=hidden,
        attention=attention * width("self_attn"),
        dense=dense * width("mlp"),
        shared=shared * width("shared_experts"),
        expert=expert * packed,
        experts=experts,
        top_k=top_k,
        head=head * plain,
        kv=kv * layers * 2.0,
        heads=int(config["num_attention_heads"]),
        kv_heads=kv_heads,
        active_flops=2.0 * active,
        widths=_widths(quantization, dense_width, moe_width if experts else 0),
    )


def _attention(config: Mapping[str, Any], hidden: int) -> tuple[int, int, int]:
    """Parameters of attention, KV elements per token, heads that KV is kept for."""
    heads = int(config["num_attention_heads"])
    rank = _first(config, "kv_lora_rank")
    if rank:
        rope = _first(config, "qk_rope_head_dim")
        nope = _first(config, "qk_nope_head_dim")
        value = _first(config, "v_head_dim")
        query_rank = _first(config, "q_lora_rank")
        queries = heads * (nope + rope)
        query = (
            hidden * query_rank + query_rank * queries
            if query_rank
            else hidden * queries
        )
        latent = hidden * (rank + rope) + rank * heads * (nope + value)
        return query + latent + heads * value * hidden, rank + rope, 1
    size = _first(config, "head_dim") or hidden // heads
    kv_heads = _first(config, "num_key_value_heads") or heads
    parameters = 2 * hidden * heads * size + 2 * hidden * kv_heads * size
    return parameters, 2 * kv_heads * size, kv_heads


def _widths(quantization: Mapping[str, Any], *widths: int) -> tuple[int, ...]:
    """Feed-forwards in what cannot be cut: a block of weights has one scale."""
    block = quantization.get("weight_block_size")
    size = int(block[0]) if isinstance(block, list) and block and block[0] else 1
    return tuple(width // size for width in widths if width)


def _bytes_per_weight(quantization: Mapping[str, Any], plain: float) -> float:
    """Bytes per quantised weight, scales included."""
    if not quantization:
        return plain
    bits = _first(quantization, "bits", "w_bit")
    size = _first(quantization, "group_size")
    for group in (quantization.get("config_groups") or {}).values():
        weights = group.get("weights") or {}
        bits = bits or _first(weights, "num_bits")
        size = size or _first(weights, "group_size")
    method = str(quantization.get("quant_method", ""))
    algorithm = str(quantization.get("quant_algo", ""))
    if not bits:
        four = "fp4" in (method + algorithm).lower() or "w4" in method.lower()
        bits = 4 if four else 8
    scales = 2.0 / size if size > 0 and bits <= 4 else 0.0
    return bits / 8 + scales


def _dtype(config: Mapping[str, Any]) -> Any:
    return config.get("torch_dtype") or config.get("dtype")


def _first(config: Mapping[str, Any], *keys: str) -> int:
    """The first of several names that holds a number; 0 for none."""
    for key in keys:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return 0


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
