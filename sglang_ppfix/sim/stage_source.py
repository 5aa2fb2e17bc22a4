"""Where stage times come from: what the user gives, or a model's shape."""

from dataclasses import dataclass, replace

from .hardware import Gpu, Link
from .load import Load
from .model_shape import ModelShape
from .presets import check_split
from .profile import Profile, default_layers
from .profile_file import read_profile
from .roofline import estimate, kv_tokens


@dataclass(frozen=True)
class Stages:
    """Stage times as the user gives them (see ``read_profile``)."""

    text: str
    prefill: str | None = None
    hop_ms: float | None = None
    head_ms: float = 0.0
    spread: float = 0.0

    def profile(
        self, pp_size: int, layers: tuple[int, ...] | None, load: Load
    ) -> Profile:
        """The profile of a ring; the load does not matter."""
        return read_profile(
            self.text,
            pp_size,
            prefill=self.prefill,
            hop_ms=self.hop_ms,
            head_ms=self.head_ms,
            layers=layers,
            spread=self.spread,
        )

    def kv_tokens(self, pp_size: int, layers: tuple[int, ...] | None) -> None:
        """Nothing is known of memory."""


@dataclass(frozen=True)
class Shape:
    """A model on GPUs: stage times and memory are estimated.

    Attributes:
        model: its shape.
        gpu: of every rank.
        link: between all of them.
        tp: ranks of a stage.
        hop_ms: replaces the link's.
        spread: replaces the estimate's.
    """

    model: ModelShape
    gpu: Gpu
    link: Link
    tp: int = 1
    hop_ms: float | None = None
    spread: float | None = None

    def __post_init__(self) -> None:
        if self.tp < 1:
            raise ValueError(f"--tp {self.tp}: allowed is 1 or more")
        reason = self.model.refusal(self.tp)
        if reason is not None:
            raise ValueError(f"--tp {self.tp}: SGLang does not start: {reason}")

    def profile(
        self, pp_size: int, layers: tuple[int, ...] | None, load: Load
    ) -> Profile:
        """The profile of a ring that serves requests of the load's mean length."""
        count = len(load.prompts)
        context = (sum(load.prompts) + sum(load.outputs) / 2) / count
        split = self._split(pp_size, layers)
        profile = estimate(self.model, self.gpu, self.link, split, self.tp, context)
        if self.hop_ms is not None:
            profile = replace(profile, hop=self.hop_ms / 1e3)
        return profile if self.spread is None else replace(profile, spread=self.spread)

    def kv_tokens(self, pp_size: int, layers: tuple[int, ...] | None) -> int:
        """Tokens that the KV pool holds.

        Raises:
            ValueError: the weights leave no room.
        """
        split = self._split(pp_size, layers)
        tokens = kv_tokens(self.model, self.gpu, split, self.tp)
        if tokens < 2:
            raise ValueError(
                f"--gpu {self.gpu.name}: {self.model.bytes / 2**30:.0f} GiB of weights "
                f"do not fit into {pp_size * self.tp} of them"
            )
        return tokens

    def _split(self, pp_size: int, layers: tuple[int, ...] | None) -> tuple[int, ...]:
        if pp_size > self.model.layers:
            raise ValueError(
                f"--pp {pp_size}: the model has {self.model.layers} layers"
            )
        if layers is None:
            return default_layers(self.model.layers, pp_size)
        check_split(layers, pp_size, self.model.layers, "the model")
        return layers
