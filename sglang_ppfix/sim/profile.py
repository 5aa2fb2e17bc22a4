"""How long stages, hops and schedulers take: what a simulated machine is."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from .curve import Affine, Curve, Sum

Row = tuple[float, ...]


@dataclass(frozen=True)
class CpuTimes:
    """CPU of one scheduler process (each rank has its own), seconds.

    The defaults are an estimate for SGLang with CUDA graphs on a server CPU.

    Attributes:
        idle: any turn, also of an empty slot: take in requests, schedule.
        launch: launch a forward, on top.
        process: process a result, on top.
        message: a message between two ranks.
    """

    idle: float = 0.15e-3
    launch: float = 1.2e-3
    process: float = 0.6e-3
    message: float = 0.05e-3


NO_CPU = CpuTimes(0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Profile:
    """Stage times of a model on a machine.

    Attributes:
        name: for tables and pictures.
        decode: one curve per stage over requests, head included in the last.
        prefill: one curve per stage over prompt tokens of a forward.
        hop: latency of hidden states to the next stage, seconds.
        way_back: latency of the outputs from the last stage to the first, sampling
            included, seconds.
        cpu: CPU times of a rank.
        kv_read: per stage, seconds that one token of context adds to a decode.
        spread: relative uncertainty of the stage times, carried into every figure.
    """

    name: str
    decode: tuple[Curve, ...]
    prefill: tuple[Curve, ...]
    hop: float = 0.05e-3
    way_back: float = 0.15e-3
    cpu: CpuTimes = CpuTimes()
    kv_read: tuple[float, ...] | None = None
    spread: float = 0.0
    _rows: dict[tuple[int, int], Row] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    @property
    def pp_size(self) -> int:
        """Number of stages, ``P``."""
        return len(self.decode)

    def row(self, decodes: int, tokens: int = 0) -> Row:
        """Time of each stage for ``decodes`` requests and ``tokens`` prompt tokens.

        A mixed batch reads its weights once: it is a prefill of all its tokens, plus
        what a decode costs more than a prefill of as many tokens.
        """
        key = (decodes, tokens)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = tuple(
                _stage_time(decode, prefill, decodes, tokens)
                for decode, prefill in zip(self.decode, self.prefill, strict=True)
            )
        return row

    def scaled(self, factor: float) -> "Profile":
        """All stage times times ``factor``; CPU and hops stay."""
        return replace(
            self,
            decode=tuple(Sum(curve, factor) for curve in self.decode),
            prefill=tuple(Sum(curve, factor) for curve in self.prefill),
            kv_read=self.kv_read and tuple(kv * factor for kv in self.kv_read),
        )

    def bounds(self) -> tuple["Profile", "Profile"]:
        """The slow and the fast end of the uncertainty."""
        return self.scaled(1.0 + self.spread), self.scaled(1.0 / (1.0 + self.spread))


def _stage_time(decode: Curve, prefill: Curve, decodes: int, tokens: int) -> float:
    if not tokens:
        return decode(decodes)
    if not decodes:
        return prefill(tokens)
    extra = max(decode(decodes) - prefill(decodes), 0.0)
    return prefill(tokens + decodes) + extra


def split_layers(
    name: str,
    decode: Curve,
    prefill: Curve,
    layers: Sequence[int],
    head: float = 0.0,
    **rest: object,
) -> Profile:
    """Cut a whole model into stages, in proportion to their layers.

    Args:
        name: of the profile.
        decode: seconds of all layers together over requests, without the head.
        prefill: the same over prompt tokens.
        layers: layers of each stage (``SGLANG_PP_LAYER_PARTITION``).
        head: seconds of ``lm_head`` and sampling, added to the last stage.
        rest: further fields of :class:`Profile`.
    """
    total = sum(layers)
    extra = [0.0] * (len(layers) - 1) + [head]
    return Profile(
        name,
        tuple(Sum(decode, n / total, e) for n, e in zip(layers, extra, strict=True)),
        tuple(Sum(prefill, n / total, e) for n, e in zip(layers, extra, strict=True)),
        **rest,  # type: ignore[arg-type]
    )


def even_profile(
    pp_size: int,
    base: float,
    per_request: float,
    per_token: float | None = None,
    **rest: object,
) -> Profile:
    """Equal stages with ``t(b) = base + per_request * b`` seconds.

    Args:
        pp_size: number of stages.
        base: fixed part.
        per_request: slope of decode.
        per_token: slope of prefill; by default a hundredth of ``t(1)``, which is where
            a memory-bound decode step and a compute-bound prompt of 100 tokens meet.
        rest: further fields of :class:`Profile`.
    """
    if per_token is None:
        per_token = (base + per_request) / 100
    decode, prefill = Affine(base, per_request), Affine(base, per_token)
    name = f"t(b) = {base * 1e3:g} + {per_request * 1e3:g} b ms"
    return Profile(name, (decode,) * pp_size, (prefill,) * pp_size, **rest)  # type: ignore[arg-type]


def default_layers(layers: int, pp_size: int) -> tuple[int, ...]:
    """Layers per stage in SGLang without ``SGLANG_PP_LAYER_PARTITION``.

    The remainder goes to the last stages (``get_pp_indices``, 0.5.6 and later).
    """
    each, rest = divmod(layers, pp_size)
    return tuple(each + (stage >= pp_size - rest) for stage in range(pp_size))
