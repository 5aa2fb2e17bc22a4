"""A model's shape: bytes, operations, and what tensor parallelism can split."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelShape:
    """Weights and KV of a decoder, bytes per layer unless said otherwise.

    Attributes:
        name: model type and size, for tables.
        layers: decoder layers.
        dense_layers: the first of them without experts.
        hidden: hidden size.
        attention: weights of attention.
        dense: weights of the feed-forward of a dense layer.
        shared: weights of shared experts.
        expert: weights of one routed expert; 0 without experts.
        experts: routed experts of a layer.
        top_k: of them, chosen per token.
        head: weights of ``lm_head``, bytes.
        kv: bytes of one token of context.
        heads: attention heads.
        kv_heads: heads that KV is kept for; MLA keeps one, that of all heads.
        active_flops: operations per token, head not counted.
        widths: of feed-forwards that are split, in blocks of the quantisation.
    """

    name: str
    layers: int
    dense_layers: int
    hidden: int
    attention: float
    dense: float
    shared: float
    expert: float
    experts: int
    top_k: int
    head: float
    kv: float
    heads: int
    kv_heads: int
    active_flops: float
    widths: tuple[int, ...] = ()

    @property
    def is_moe(self) -> bool:
        """Whether it has routed experts."""
        return self.experts > 0

    def layer_bytes(self, layer: int) -> float:
        """All weights of a layer."""
        if layer < self.dense_layers or not self.is_moe:
            return self.attention + self.dense
        return self.attention + self.shared + self.experts * self.expert

    @property
    def bytes(self) -> float:
        """All weights, embedding included."""
        layers = sum(self.layer_bytes(layer) for layer in range(self.layers))
        return layers + 2 * self.head

    def kv_parts(self, tp: int) -> int:
        """Parts that ``tp`` ranks cut the KV into: SGLang copies heads beyond."""
        return min(tp, self.kv_heads)

    def refusal(self, tp: int) -> str | None:
        """Why SGLang does not start with ``tp`` ranks of a stage; None if it does.

        Source: the assertions of SGLang 0.5.23's attention layers (``models/llama.py``
        and all like it), ``divide`` of its linear layers, and the block check of
        ``layers/quantization/fp8.py``.
        """
        if self.heads % tp:
            return f"{self.heads} attention heads cannot be split over {tp} ranks"
        most, least = max(self.kv_heads, tp), min(self.kv_heads, tp)
        if most % least:
            return f"{self.kv_heads} KV heads cannot be split over {tp} ranks"
        for width in self.widths:
            if width % tp:
                return (
                    f"a feed-forward of {width} blocks cannot be split over {tp} ranks"
                )
        return None
