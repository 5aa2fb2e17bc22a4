"""From a model, GPUs and a load to a command line, and what each choice is worth."""

from dataclasses import asdict, dataclass
from typing import Any

from .advice_choices import Choice, choices_for, even_filling_pays, rejected_for
from .advice_words import command_line, graph_sizes, notes_on
from .layouts import Layout, Wish, layouts, server_for
from .reports import report_for


@dataclass(frozen=True)
class Advice:
    """What to do.

    Attributes:
        wish: what it is for.
        layouts: all of them, best first.
        best: the layout to use.
        pipeline: the layout with stages that the choices are for: the reported one,
            else the best; None if none fits.
        choices: for that pipeline, in order.
        rejected: settings that were looked at and should not be used.
        target_slots: slots to fill.
        cap: largest micro-batch.
        graph_sizes: micro-batch sizes that can occur.
        chunk: ``--chunked-prefill-size``.
        commands: command lines, the best layout's first.
        notes: facts and doubts, a sentence each.
    """

    wish: Wish
    layouts: list[Layout]
    best: Layout
    pipeline: Layout | None
    choices: list[Choice]
    rejected: list[Choice]
    target_slots: int | None
    cap: int | None
    graph_sizes: list[int]
    chunk: int | None
    commands: list[str]
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        wish = self.wish
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
            "pipeline": None if self.pipeline is None else self.pipeline.name,
            "layers": None if self.pipeline is None else list(self.pipeline.layers),
            "choices": [asdict(choice) for choice in self.choices],
            "rejected": [asdict(choice) for choice in self.rejected],
            "target_slots": self.target_slots,
            "cap": self.cap,
            "graph_sizes": self.graph_sizes,
            "chunked_prefill_size": self.chunk,
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
        "tpot_ms": round(layout.tpot_ms, 2),
        "kv_tokens": layout.kv_tokens,
        "fits": layout.fits,
        "reported": layout.reported,
    }


def advise(wish: Wish) -> Advice:
    """Work out what to do.

    Raises:
        ValueError: the model fits in no layout.
    """
    found = layouts(wish)
    fitting = [layout for layout in found if layout.fits]
    if not fitting:
        raise ValueError(
            f"--gpus {wish.gpus}: the weights ({wish.model.bytes / 2**30:.0f} GiB) do "
            f"not fit into {wish.gpus} x {wish.gpu.memory / 2**30:.0f} GiB with any "
            "layout; allowed are more or larger GPUs, or a quantised model"
        )
    pipelines = [layout for layout in fitting if layout.pp > 1]
    best = fitting[0]
    # Where somebody reported figures of a pipeline, they carry further than estimates.
    known = [p for p in pipelines if p.tp == 1] if report_for(wish) else []
    pipeline = next(iter([*known, *pipelines]), None)
    if pipeline is None:
        commands = [command_line(wish, best, None, None)]
        notes = list(notes_on(wish, found, best, None))
        return Advice(
            wish, found, best, None, [], [], None, None, [], None, commands, notes
        )
    choices, chunk = choices_for(wish, pipeline), pipeline.chunk
    server = server_for(wish, pipeline)
    cap = server.derived_cap
    pays = even_filling_pays(choices)
    commands = [command_line(wish, pipeline, chunk, cap, plugin=pays)]
    if best is not pipeline:
        cap_of_best = server_for(wish, best).derived_cap if best.pp > 1 else None
        commands.insert(0, command_line(wish, best, best.chunk, cap_of_best))
    return Advice(
        wish,
        found,
        best,
        pipeline,
        choices,
        rejected_for(wish, pipeline),
        server.filled_slots,
        cap,
        graph_sizes(cap),
        chunk,
        commands,
        list(notes_on(wish, found, best, pipeline, even=pays)),
    )
