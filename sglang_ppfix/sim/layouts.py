"""Ways to lay a model over GPUs."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from .advice_value import NOTHING, Choice, Figures
from .hardware import Gpu, Link
from .load import Load, closed_loop
from .model_shape import ModelShape
from .partition import best_split
from .presets import Reading, the_case
from .profile import default_layers
from .reports import report_for
from .roofline import estimate, head_time, kv_tokens, layer_times
from .server import Server, default_chunk


@dataclass(frozen=True)
class Wish:
    """What the user has and wants.

    Attributes:
        model: its shape.
        gpu: the kind.
        gpus: how many.
        link: between them.
        clients: requests in flight.
        prompt: mean prompt tokens.
        output: mean output tokens.
        goal: ``throughput`` or ``latency``, that is time per token.
    """

    model: ModelShape
    gpu: Gpu
    gpus: int
    link: Link
    clients: int
    prompt: int
    output: int
    goal: str = "throughput"

    def __post_init__(self) -> None:
        if self.goal == "latency" and self.output < 2:
            raise ValueError(
                f"--output-tokens {self.output}: --goal latency is time per token "
                "after the first; allowed are 2 or more"
            )

    @property
    def context(self) -> float:
        """Mean context of a decoding request."""
        return self.prompt + self.output / 2

    def load(self) -> Load:
        """Clients with one request at a time."""
        return self._load

    def kv_tokens(self, tp: int, layers: tuple[int, ...]) -> int:
        """Tokens of context that a layout holds."""
        return kv_tokens(self.model, self.gpu, layers, tp)

    def holds(self, tokens: int) -> bool:
        """Whether a KV pool of ``tokens`` holds the longest request."""
        return tokens >= self._longest

    @cached_property
    def _load(self) -> Load:
        requests = max(5 * self.clients, 20)
        return closed_loop(self.clients, requests, self.prompt, self.output)

    @cached_property
    def _longest(self) -> int:
        load = self._load
        # SGLang keeps two tokens back.
        return max(map(sum, zip(load.prompts, load.outputs, strict=True))) + 2


@dataclass(frozen=True)
class Layout:
    """One way to use the GPUs.

    Attributes:
        tp: ranks of a stage.
        pp: stages.
        layers: of each stage.
        kv_tokens: tokens that the KV pool of the fullest stage holds.
        fits: whether weights and the longest request fit into memory.
        figures: predicted, with all settings that pay.
        bounds: the same for every reading and bound of the stage times.
        reported: whether it was measured on such a machine, not predicted.
        plugin: whether even filling is sure to pay.
        chunk: ``--chunked-prefill-size``; None leaves SGLang's.
        depth: ``--pp-async-batch-depth``.
        choices: SGLang's defaults, then each setting that pays, in order.
        unsure: settings that gain under some readings and cost under others.
        rejected: settings that gain nothing.
    """

    tp: int
    pp: int
    layers: tuple[int, ...]
    kv_tokens: int
    fits: bool
    figures: Figures = NOTHING
    bounds: tuple[Figures, ...] = ()
    reported: bool = False
    plugin: bool = False
    chunk: int | None = None
    depth: int = 0
    choices: tuple[Choice, ...] = ()
    unsure: tuple[Choice, ...] = ()
    rejected: tuple[Choice, ...] = ()

    @property
    def name(self) -> str:
        """As people call it."""
        if self.pp == 1:
            return f"TP{self.tp}"
        return f"PP{self.pp}" if self.tp == 1 else f"TP{self.tp} x PP{self.pp}"

    @property
    def tok_s(self) -> float:
        """Predicted output tokens per second."""
        return self.figures.tok_s

    @property
    def low(self) -> float:
        """Lower bound of :attr:`tok_s`."""
        return min((one.tok_s for one in self.bounds), default=0.0)

    @property
    def high(self) -> float:
        """Upper bound of :attr:`tok_s`."""
        return max((one.tok_s for one in self.bounds), default=0.0)

    def merits(self, goal: str) -> tuple[float, float]:
        """The lowest and the highest merit (see :meth:`Figures.merit`)."""
        merits = [one.merit(goal) for one in self.bounds]
        return min(merits), max(merits)


def candidates(wish: Wish) -> Iterator[Layout]:
    """All layouts that SGLang starts, whether they fit into memory or not."""
    for tp, pp in _shapes(wish):
        if wish.model.refusal(tp) is None:
            layers = split_for(wish, tp, pp) if pp > 1 else (wish.model.layers,)
            tokens = wish.kv_tokens(tp, layers)
            # Another split than SGLang's own may be what does not fit.
            most = max(tokens, wish.kv_tokens(tp, default_split(wish, pp)))
            yield Layout(tp, pp, layers, tokens, wish.holds(most))


def refusals(wish: Wish) -> Iterator[str]:
    """Layouts that SGLang refuses, a sentence each."""
    for tp, pp in _shapes(wish):
        reason = wish.model.refusal(tp)
        if reason is not None:
            yield f"{Layout(tp, pp, (), 0, False).name} does not start: {reason}."


def _shapes(wish: Wish) -> Iterator[tuple[int, int]]:
    for pp in range(1, min(wish.gpus, wish.model.layers) + 1):
        tp = wish.gpus // pp
        if wish.gpus % pp == 0 and tp & (tp - 1) == 0:
            yield tp, pp


def server_for(wish: Wish, layout: Layout) -> Server:
    """The server of a pipeline layout as it is before any choice."""
    return Server(
        layout.pp,
        # Twice the clients, and the same for every slot.
        max_running_requests=max(-(-2 * wish.clients // layout.pp), 1) * layout.pp,
        kv_tokens=wish.kv_tokens(layout.tp, layout.layers),
        chunked_prefill_size=default_chunk(wish.gpu.memory),
    )


def readings_for(
    wish: Wish, layout: Layout, layers: tuple[int, ...]
) -> tuple[Reading, ...]:
    """Stage times of a pipeline layout: as reported if somebody did, else estimated."""
    report = report_for(wish)
    if report is not None and layout.tp == 1 and report.preset == "the-case":
        return tuple(
            replace(reading, ideal_loop=False) for reading in the_case(layers).readings
        )
    profile = estimate(wish.model, wish.gpu, wish.link, layers, layout.tp, wish.context)
    return (Reading("estimated", profile),)


def split_for(wish: Wish, tp: int, pp: int) -> tuple[int, ...]:
    """Layers per stage with the head counted, at the micro-batch that will run."""
    batch = max(-(-wish.clients // pp), 1)
    times = layer_times(wish.model, wish.gpu, wish.link, tp, batch, wish.context)
    return best_split(times, pp, head_time(wish.model, wish.gpu, tp))


def default_split(wish: Wish, pp: int) -> tuple[int, ...]:
    """SGLang's own layers per stage."""
    return default_layers(wish.model.layers, pp)
