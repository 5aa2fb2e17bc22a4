"""How SGLang splits layers over stages, and a split with a lighter tail."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

#: Layers, routed experts, experts per token of models that users run as pipelines
#: (from their config.json).
_KNOWN_MODELS: tuple[tuple[str, int, int | None, int | None], ...] = (
    (r"kimi-?k2", 61, 384, 8),
    (r"deepseek-?(v3|r1)", 61, 256, 8),
    (r"qwen3-235b", 94, 128, 8),
    (r"qwen3-30b", 48, 128, 8),
    (r"qwen3-coder-480b", 62, 160, 8),
    (r"qwen3-32b", 64, None, None),
    (r"gpt-oss-120b", 36, 128, 4),
    (r"mixtral-8x7b", 32, 8, 2),
    (r"mixtral-8x22b", 56, 8, 2),
    (r"llama-3(\.\d)?-70b", 80, None, None),
)


def default_partition(layers: int, pp_size: int) -> tuple[int, ...]:
    """SGLang's own split: the remainder goes to the last stages.

    Source: ``get_pp_indices`` of 0.5.6 and later, without
    ``SGLANG_PP_LAYER_PARTITION``.
    """
    base, more = divmod(layers, pp_size)
    return (base,) * (pp_size - more) + (base + 1,) * more


def lighter_tail(layers: int, pp_size: int, head_layers: float) -> tuple[int, ...]:
    """Most even split when the last stage also does ``head_layers`` layers of work."""
    loads = [0.0] * pp_size
    loads[-1] = head_layers
    counts = [0] * pp_size
    for _ in range(layers):
        # Of equal stages the first: what is left over makes the tail lighter.
        stage = min(range(pp_size), key=lambda s: (loads[s] + 1.0, s))
        counts[stage] += 1
        loads[stage] += 1.0
    return tuple(counts)


def model_facts(model: str | None) -> tuple[int | None, int | None, int | None, str]:
    """Layers, experts, experts per token of a model, and where that comes from.

    Reads ``config.json`` where ``model`` is a folder here, else knows a few names.
    """
    if not model:
        return None, None, None, ""
    config = Path(model) / "config.json"
    try:
        text = config.read_text(encoding="utf-8")
        parsed = json.loads(text)
    except (OSError, ValueError):
        parsed = None
    if isinstance(parsed, dict):
        inner = parsed.get("text_config")
        fields = {**parsed, **inner} if isinstance(inner, dict) else parsed
        return (
            _number(fields, "num_hidden_layers"),
            _number(fields, "n_routed_experts", "num_experts", "num_local_experts"),
            _number(fields, "num_experts_per_tok", "experts_per_token"),
            str(config),
        )
    for pattern, layers, experts, top_k in _KNOWN_MODELS:
        if re.search(pattern, model, re.IGNORECASE):
            return layers, experts, top_k, f"model name {model!r}"
    return None, None, None, ""


def _number(fields: dict[str, object], *names: str) -> int | None:
    for name in names:
        value = fields.get(name)
        if isinstance(value, int) and value > 0:
            return value
    return None


def shown(partition: Sequence[int]) -> str:
    """A split as ``SGLANG_PP_LAYER_PARTITION`` wants it."""
    return ",".join(map(str, partition))
