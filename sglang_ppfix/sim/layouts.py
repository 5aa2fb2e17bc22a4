"""Ways to lay a model over GPUs, and what each is predicted to give."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .hardware import Gpu, Link
from .load import Load, closed_loop
from .model_shape import ModelShape
from .partition import best_split
from .presets import Reading, the_case
from .profile import default_layers
from .reports import between, report_for
from .roofline import SPREAD, estimate, head_time, layer_times
from .server import Server
from .sweep import Case, row_of, without_bounds

_CHUNKS = (256, 512, 1024, 2048, 4096)
# Below this a difference of throughput is no reason to change a setting.
_ALIKE = 0.01
# Part of the memory that SGLang gives to weights and KV.
_USABLE = 0.88


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

    @property
    def context(self) -> float:
        """Mean context of a decoding request."""
        return self.prompt + self.output / 2

    def load(self) -> Load:
        """Clients with one request at a time."""
        return closed_loop(
            self.clients, max(5 * self.clients, 20), self.prompt, self.output
        )


@dataclass(frozen=True)
class Layout:
    """One way to use the GPUs.

    Attributes:
        tp: ranks of a stage.
        pp: stages.
        layers: of each stage.
        kv_tokens: tokens that the KV pool of the fullest stage holds.
        tok_s: predicted, with the plugin where there are stages.
        low: its lower bound.
        high: its upper bound.
        tpot_ms: predicted time per token.
        reported: whether it was measured on such a machine, not predicted.
        chunk: ``--chunked-prefill-size``; None leaves SGLang's.
    """

    tp: int
    pp: int
    layers: tuple[int, ...]
    kv_tokens: int
    tok_s: float = 0.0
    low: float = 0.0
    high: float = 0.0
    tpot_ms: float = 0.0
    reported: bool = False
    chunk: int | None = None

    @property
    def name(self) -> str:
        """As people call it."""
        if self.pp == 1:
            return f"TP{self.tp}"
        return f"PP{self.pp}" if self.tp == 1 else f"TP{self.tp} x PP{self.pp}"

    @property
    def fits(self) -> bool:
        """Whether the weights leave room for KV."""
        return self.kv_tokens > 0


def layouts(wish: Wish) -> list[Layout]:
    """All layouts, those that fit and serve the goal best first."""
    found = [_measure(wish, layout) for layout in _shapes(wish)]
    if wish.goal == "latency":
        return sorted(found, key=lambda layout: (not layout.fits, layout.tpot_ms))
    return sorted(found, key=lambda layout: (not layout.fits, -layout.tok_s))


def rows_for(wish: Wish, pp: int) -> int:
    """``--max-running-requests``: twice the clients, the same for every slot."""
    return max(-(-2 * wish.clients // pp), 1) * pp


def server_for(wish: Wish, layout: Layout) -> Server:
    """The server of a pipeline layout, without async depth, with SGLang's chunk."""
    return Server(layout.pp, 0, rows_for(wish, layout.pp))


def best_chunk(wish: Wish, case: Case) -> int | None:
    """The chunk with most throughput; of those alike, the one with even token times.

    Returns:
        None where SGLang's own is as good, or the prompts are shorter than any chunk.
    """
    rows = {}
    for chunk in (None, *_CHUNKS):
        if chunk is not None and chunk >= wish.prompt:
            continue
        server = case.server
        if chunk is not None:
            server = replace(server, chunked_prefill_size=chunk)
        rows[chunk] = row_of(
            replace(case, server=server, readings=without_bounds(case.readings))
        )
    most = max(row["tok_s"] for row in rows.values())
    alike = [chunk for chunk in rows if rows[chunk]["tok_s"] >= most * (1 - _ALIKE)]
    if None in alike:
        return None
    return min(alike, key=lambda chunk: rows[chunk]["tpot_p99_ms"])


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


def _shapes(wish: Wish) -> Iterator[Layout]:
    for pp in range(1, wish.gpus + 1):
        tp = wish.gpus // pp
        if wish.gpus % pp or pp > wish.model.layers or tp & (tp - 1):
            continue
        layers = split_for(wish, tp, pp) if pp > 1 else (wish.model.layers,)
        yield Layout(tp, pp, layers, _kv_tokens(wish, tp, layers))


def _kv_tokens(wish: Wish, tp: int, layers: tuple[int, ...]) -> int:
    """Tokens of context that the fullest stage can hold."""
    model, first, least = wish.model, 0, float("inf")
    for stage, count in enumerate(layers):
        weights = sum(model.layer_bytes(i) for i in range(first, first + count))
        weights += model.head * ((stage == 0) + (stage == len(layers) - 1))
        first += count
        free = wish.gpu.memory * _USABLE - weights / tp
        per_token = model.kv * count / model.layers / (tp if model.kv_split else 1)
        least = min(least, free / per_token)
    return max(int(least), 0)


def _measure(wish: Wish, layout: Layout) -> Layout:
    if layout.pp == 1:
        return _measure_tp(wish, layout)
    case = Case(
        "balanced",
        server_for(wish, layout),
        wish.load(),
        readings_for(wish, layout, layout.layers),
    )
    chunk = best_chunk(wish, case)
    if chunk is not None:
        server = replace(case.server, chunked_prefill_size=chunk)
        case = replace(case, server=server)
    row = row_of(case)
    return replace(
        layout,
        chunk=chunk,
        tok_s=row["tok_s"],
        low=row["tok_s_low"],
        high=row["tok_s_high"],
        tpot_ms=row["tpot_ms"],
    )


def _measure_tp(wish: Wish, layout: Layout) -> Layout:
    """Tensor parallelism alone: one batch of all clients, prompts in between."""
    report = report_for(wish)
    if report is not None:
        tok_s = between(report.tp, wish.clients)
        exact = wish.clients in report.tp
        spread = 1.03 if exact else 1.25
        return replace(
            layout,
            tok_s=tok_s,
            low=tok_s / spread,
            high=tok_s * spread,
            tpot_ms=1e3 * wish.clients / tok_s,
            reported=exact,
        )
    profile = estimate(
        wish.model, wish.gpu, wish.link, layout.layers, layout.tp, wish.context
    )
    step = profile.decode[0](wish.clients) + profile.cpu.launch
    prefill = profile.prefill[0](wish.prompt)
    time = wish.output * step + wish.clients * prefill
    tok_s = wish.clients * wish.output / time
    return replace(
        layout,
        tok_s=tok_s,
        low=tok_s / (1 + SPREAD),
        high=tok_s * (1 + SPREAD),
        tpot_ms=1e3 * time / wish.output,
    )


def default_split(wish: Wish, pp: int) -> tuple[int, ...]:
    """SGLang's own layers per stage."""
    return default_layers(wish.model.layers, pp)
