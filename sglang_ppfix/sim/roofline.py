"""Stage times from a model's shape and a GPU's figures: a first guess.

A layer takes the longer of reading its weights and computing, plus a fixed time for its
kernels, plus two all-reduces under tensor parallelism. Efficiencies are what decode
kernels typically reach; the spread says how much to trust the result.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .curve import Curve, Sum, distinct_experts
from .hardware import Gpu, Link
from .model_shape import ModelShape
from .profile import CpuTimes, Profile

# Part of the bandwidth that reading weights reaches: plain ones, and experts, whose
# kernels handle a few rows each. The case of this project comes out at 0.44 to 0.6.
_READS, _READS_EXPERTS, _COMPUTES = 0.75, 0.5, 0.45
# Launches, norms, routing and small kernels of a layer, CUDA graphs on.
_LAYER_OVERHEAD = 25e-6
_SAMPLING = 0.2e-3
# Part of the memory that SGLang gives to weights and KV.
_USABLE = 0.88
#: Relative uncertainty of a profile that nothing was measured for.
SPREAD = 0.35


@dataclass(frozen=True)
class LayersCurve:
    """Seconds of some layers over the tokens of a forward.

    Attributes:
        model: the shape.
        gpu: of each rank.
        link: between the ranks of a tensor-parallel group.
        tp: size of that group.
        dense: layers without experts.
        sparse: layers with experts.
        context: tokens that each request's attention reads; 0 in prefill.
    """

    model: ModelShape
    gpu: Gpu
    link: Link
    tp: int
    dense: int
    sparse: int
    context: float

    def __call__(self, count: float) -> float:
        model, gpu, tp = self.model, self.gpu, self.tp
        layers = self.dense + self.sparse
        touched = (
            distinct_experts(count, model.experts, model.top_k) if self.sparse else 0.0
        )
        plain = layers * model.attention + self.dense * model.dense
        plain += self.sparse * model.shared
        reads = plain / _READS + self.sparse * touched * model.expert / _READS_EXPERTS
        kv = layers / model.layers * model.kv * self.context * count / _READS
        memory = (reads / tp + kv / model.kv_parts(tp)) / gpu.bandwidth
        flops = layers / model.layers * model.active_flops * count / tp
        return (
            max(memory, flops / (gpu.flops * _COMPUTES))
            + layers * _LAYER_OVERHEAD
            + layers * 2 * all_reduce(self.link, tp, count * model.hidden * 2)
        )


def all_reduce(link: Link, ranks: int, size: float) -> float:
    """Seconds of one all-reduce of ``size`` bytes."""
    if ranks == 1:
        return 0.0
    steps = ranks - 1
    return steps * link.step + 2 * steps / ranks * size / link.bandwidth


def head_time(model: ModelShape, gpu: Gpu, tp: int) -> float:
    """Seconds of ``lm_head`` and sampling, of the last stage only."""
    return model.head / tp / (gpu.bandwidth * _READS) + _SAMPLING


def layer_times(
    model: ModelShape, gpu: Gpu, link: Link, tp: int, batch: int, context: float
) -> list[float]:
    """Seconds of every layer at a decode of ``batch`` requests."""
    dense = LayersCurve(model, gpu, link, tp, 1, 0, context)(batch)
    sparse = dense
    if model.is_moe:
        sparse = LayersCurve(model, gpu, link, tp, 0, 1, context)(batch)
    return [
        dense if layer < model.dense_layers else sparse for layer in range(model.layers)
    ]


def kv_tokens(model: ModelShape, gpu: Gpu, layers: Sequence[int], tp: int) -> int:
    """Tokens of context that the fullest stage can hold beside its weights."""
    first, least = 0, float("inf")
    for stage, count in enumerate(layers):
        weights = sum(model.layer_bytes(i) for i in range(first, first + count))
        weights += model.head * ((stage == 0) + (stage == len(layers) - 1))
        first += count
        free = gpu.memory * _USABLE - weights / tp
        per_token = model.kv * count / model.layers / model.kv_parts(tp)
        least = min(least, free / per_token)
    return max(int(least), 0)


def estimate(
    model: ModelShape,
    gpu: Gpu,
    link: Link,
    layers: Sequence[int],
    tp: int = 1,
    context: float = 0.0,
) -> Profile:
    """The profile of a pipeline.

    Args:
        model: its shape.
        gpu: of every rank.
        link: between all of them.
        layers: layers of each stage.
        tp: tensor-parallel ranks of each stage.
        context: mean tokens of context of a decoding request.
    """
    decode: list[Curve] = []
    prefill: list[Curve] = []
    first = 0
    for stage, count in enumerate(layers):
        dense = max(min(model.dense_layers - first, count), 0)
        first += count
        extra = head_time(model, gpu, tp) if stage == len(layers) - 1 else 0.0
        for curves, read in ((decode, context), (prefill, 0.0)):
            curve = LayersCurve(model, gpu, link, tp, dense, count - dense, read)
            curves.append(Sum(curve, 1.0, extra))
    message = 8 * model.hidden * 2 * 2
    return Profile(
        f"{model.name} on {len(layers)} x {tp} {gpu.name} (estimated)",
        tuple(decode),
        tuple(prefill),
        hop=link.hop + message / link.bandwidth,
        way_back=2 * link.hop,
        cpu=CpuTimes(),
        spread=SPREAD,
    )
