"""From a model, GPUs and a load to a command line, and what each choice is worth."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from .advice_choices import tuned
from .advice_tensor import tensor_parallel
from .advice_value import Choice
from .advice_words import cap_of, command_line, graph_sizes, notes_on
from .layouts import Layout, Wish, candidates, refusals, server_for
from .reports import report_for
from .server import default_chunk


@dataclass(frozen=True)
class Advice:
    """What to do.

    Attributes:
        wish: what it is for.
        layouts: all that SGLang starts, best first.
        best: the layout to use.
        pipeline: the layout with stages that the choices are for: the reported one,
            else the best; None if none fits.
        target_slots: slots that the plugin fills; None where it is left off.
        cap: largest micro-batch of that pipeline.
        graph_sizes: micro-batch sizes that can occur.
        commands: command lines, the best layout's first.
        notes: facts and doubts, a sentence each.
    """

    wish: Wish
    layouts: list[Layout]
    best: Layout
    pipeline: Layout | None
    target_slots: int | None
    cap: int | None
    graph_sizes: list[int]
    commands: list[str]
    notes: list[str]

    @property
    def choices(self) -> tuple[Choice, ...]:
        """What pays on that pipeline, one on top of the other."""
        return () if self.pipeline is None else self.pipeline.choices

    @property
    def unsure(self) -> tuple[Choice, ...]:
        """What may pay or cost, on top of the choices."""
        return () if self.pipeline is None else self.pipeline.unsure

    @property
    def rejected(self) -> tuple[Choice, ...]:
        """What gains nothing."""
        return () if self.pipeline is None else self.pipeline.rejected

    @property
    def chunk(self) -> int | None:
        """``--chunked-prefill-size`` of that pipeline; None leaves SGLang's."""
        return None if self.pipeline is None else self.pipeline.chunk

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        wish = self.wish
        pipeline = self.pipeline
        return {
            "model": wish.model.name,
            "gpu": wish.gpu.name,
            "gpus": wish.gpus,
            "link": wish.link.name,
            "clients": wish.clients,
            "prompt_tokens": wish.prompt,
            "output_tokens": wish.output,
            "goal": wish.goal,
            "layouts": [_layout_json(layout) for layout in self.layouts],
            "best": self.best.name,
            "pipeline": None if pipeline is None else pipeline.name,
            "layers": None if pipeline is None else list(pipeline.layers),
            "choices": [asdict(choice) for choice in self.choices],
            "unsure": [asdict(choice) for choice in self.unsure],
            "rejected": [asdict(choice) for choice in self.rejected],
            "target_slots": self.target_slots,
            "cap": self.cap,
            "async_depth": None if pipeline is None else pipeline.depth,
            "graph_sizes": self.graph_sizes,
            "chunked_prefill_size": self.chunk,
            "default_chunked_prefill_size": default_chunk(wish.gpu.memory),
            "commands": self.commands,
            "notes": self.notes,
        }


def _layout_json(layout: Layout) -> dict[str, Any]:
    return {
        "name": layout.name,
        "tp": layout.tp,
        "pp": layout.pp,
        "tok_s": round(layout.tok_s, 1),
        "tok_s_low": round(layout.low, 1),
        "tok_s_high": round(layout.high, 1),
        "tpot_ms": round(layout.figures.tpot_ms, 2),
        "kv_tokens": layout.kv_tokens,
        "fits": layout.fits,
        "reported": layout.reported,
    }


def advise(wish: Wish) -> Advice:
    """Work out what to do.

    Raises:
        ValueError: no layout starts, or the model fits in none.
    """
    found = _valued(wish)
    fitting = [layout for layout in found if layout.fits]
    if not fitting:
        raise ValueError(_why_none(wish, found))
    pipelines = [layout for layout in fitting if layout.pp > 1]
    best = fitting[0]
    # Where somebody reported figures of a pipeline, they carry further than estimates.
    known = [p for p in pipelines if p.tp == 1] if report_for(wish) else []
    pipeline = next(iter([*known, *pipelines]), None)
    chosen = [best, *([pipeline] if pipeline not in (None, best) else [])]
    cap = slots = None
    if pipeline is not None:
        server = replace(server_for(wish, pipeline), async_depth=pipeline.depth)
        cap = cap_of(wish, pipeline)
        slots = server.filled_slots if pipeline.plugin else None
    return Advice(
        wish,
        found,
        best,
        pipeline,
        slots,
        cap,
        [] if cap is None else graph_sizes(cap),
        [command_line(wish, layout) for layout in chosen if layout is not None],
        list(notes_on(wish, found, best, pipeline)),
    )


def _valued(wish: Wish) -> list[Layout]:
    """All layouts, those that fit and serve the goal best first."""
    found = []
    for layout in candidates(wish):
        if layout.fits and layout.pp > 1:
            layout = tuned(wish, layout)
        elif layout.fits:
            layout = tensor_parallel(wish, layout)
        found.append(layout)
    return sorted(found, key=lambda one: (not one.fits, -one.figures.merit(wish.goal)))


def _why_none(wish: Wish, found: list[Layout]) -> str:
    model, memory = wish.model, wish.gpu.memory / 2**30
    if not found:
        return f"--gpus {wish.gpus}: " + " ".join(refusals(wish))
    tokens = max(layout.kv_tokens for layout in found)
    if tokens:
        return (
            f"--prompt-tokens {wish.prompt}, --output-tokens {wish.output}: the "
            f"longest request does not fit beside the weights, which leave room for "
            f"{tokens} tokens; allowed are shorter ones, or more or larger GPUs"
        )
    return (
        f"--gpus {wish.gpus}: the weights ({model.bytes / 2**30:.0f} GiB) do "
        f"not fit into {wish.gpus} x {memory:.0f} GiB with any "
        "layout; allowed are more or larger GPUs, or a quantised model"
    )
