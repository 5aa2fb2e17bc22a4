"""From a model, GPUs and a load to a command line, and what each choice is worth."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from .layouts import (
    Layout,
    Wish,
    default_split,
    layouts,
    readings_for,
    report_for,
    reported_pipeline,
    server_for,
)
from .presets import Reading
from .sweep import Case, row_of

# All sizes up to here get a CUDA graph of their own; above, multiples of four.
_EVERY_SIZE = 16


@dataclass(frozen=True)
class Choice:
    """One setting and its worth.

    Attributes:
        what: the setting in words.
        setting: as it is given to SGLang; empty for nothing to set.
        tok_s: predicted with this and all choices before it.
        low: the same at the slow end of the uncertainty.
        high: at the fast end.
        gain: over the choice before it, as a part: 0.1 is 10 % more.
        gain_low: smallest gain over all readings and bounds.
        gain_high: largest.
    """

    what: str
    setting: str
    tok_s: float
    low: float
    high: float
    gain: float | None
    gain_low: float | None
    gain_high: float | None


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
        commands = [_command(wish, best, None, None)]
        notes = list(_notes(wish, found, best, None))
        return Advice(
            wish, found, best, None, [], [], None, None, [], None, commands, notes
        )
    choices, chunk = _choices(wish, pipeline), pipeline.chunk
    server = server_for(wish, pipeline)
    cap = server.derived_cap
    pipeline_command = _command(wish, pipeline, chunk, cap)
    commands = [pipeline_command]
    if best is not pipeline:
        cap_of_best = server_for(wish, best).derived_cap if best.pp > 1 else None
        commands.insert(0, _command(wish, best, best.chunk, cap_of_best))
    return Advice(
        wish,
        found,
        best,
        pipeline,
        choices,
        _rejected(wish, pipeline),
        server.filled_slots,
        cap,
        graph_sizes(cap),
        chunk,
        commands,
        list(_notes(wish, found, best, pipeline)),
    )


def graph_sizes(cap: int) -> list[int]:
    """Micro-batch sizes worth a CUDA graph when no slot holds more than ``cap``."""
    sizes = list(range(1, min(cap, _EVERY_SIZE) + 1))
    sizes += list(range(_EVERY_SIZE + 4, cap + 4, 4))
    return sizes


def _choices(wish: Wish, layout: Layout) -> list[Choice]:
    """Stock, then each setting that helps, on top of those before it."""
    server, default = server_for(wish, layout), default_split(wish, layout.pp)
    plain = readings_for(wish, layout, default)
    split = readings_for(wish, layout, layout.layers)
    load = wish.load()
    steps: list[tuple[str, str, Case]] = [
        ("SGLang's defaults", "", Case("stock", server, load, plain)),
        ("even filling", "SGLANG_PPFIX=1", Case("balanced", server, load, plain)),
    ]
    if layout.layers != default:
        partition = ",".join(map(str, layout.layers))
        steps.append(
            (
                "layers, lm_head counted",
                f"SGLANG_PP_LAYER_PARTITION={partition}",
                Case("balanced", server, load, split),
            )
        )
    if layout.chunk is not None:
        chunked = replace(server, chunked_prefill_size=layout.chunk)
        setting = f"--chunked-prefill-size {layout.chunk}"
        steps.append(("chunk size", setting, replace(steps[-1][2], server=chunked)))
    return list(_valued(steps))


def _rejected(wish: Wish, layout: Layout) -> list[Choice]:
    """Async depth: what it would cost."""
    server, load = server_for(wish, layout), wish.load()
    if layout.chunk is not None:
        server = replace(server, chunked_prefill_size=layout.chunk)
    readings = readings_for(wish, layout, layout.layers)
    steps = [("no async depth", "", Case("balanced", server, load, readings))]
    for depth in sorted({1, layout.pp}):
        deep = replace(server, async_depth=depth)
        steps.append(
            (
                f"async depth {depth}",
                f"--pp-async-batch-depth {depth}",
                Case("balanced", deep, load, readings),
            )
        )
    first, *others = steps
    return [list(_valued([first, other]))[1] for other in others]


def _valued(steps: list[tuple[str, str, Case]]) -> Iterator[Choice]:
    """Each step with its gain; bounds are compared like with like."""
    before: list[float] = []
    for what, setting, case in steps:
        values = [
            row_of(replace(case, readings=(one,)))["tok_s"]
            for one in _all_bounds(case.readings)
        ]
        gains = [now / then - 1 for now, then in zip(values, before, strict=False)]
        yield Choice(
            what,
            setting,
            values[0],
            min(values),
            max(values),
            *(
                (round(gains[0], 4), round(min(gains), 4), round(max(gains), 4))
                if gains
                else (None, None, None)
            ),
        )
        before = values


def _all_bounds(readings: tuple[Reading, ...]) -> Iterator[Reading]:
    first = readings[0]
    yield replace(first, profile=replace(first.profile, spread=0.0))
    yield from readings[1:]
    if first.profile.spread:
        for profile in first.profile.bounds():
            yield replace(first, profile=replace(profile, spread=0.0))


def _command(wish: Wish, layout: Layout, chunk: int | None, cap: int | None) -> str:
    words = []
    if layout.pp > 1:
        words.append("SGLANG_PPFIX=1")
        if layout.layers != default_split(wish, layout.pp):
            partition = ",".join(map(str, layout.layers))
            words.append(f"SGLANG_PP_LAYER_PARTITION={partition}")
    words += ["python -m sglang.launch_server", "--model-path MODEL"]
    words.append(f"--tp-size {layout.tp}")
    if layout.pp > 1:
        rows = server_for(wish, layout).max_running_requests
        words += [f"--pp-size {layout.pp}", f"--max-running-requests {rows}"]
    if cap is not None:
        sizes = " ".join(map(str, graph_sizes(cap)))
        words.append(f"--cuda-graph-bs-decode {sizes}")
    if chunk is not None:
        words.append(f"--chunked-prefill-size {chunk}")
    return " ".join(words)


def _notes(
    wish: Wish, found: list[Layout], best: Layout, pipeline: Layout | None
) -> Iterator[str]:
    report = report_for(wish)
    if report is not None:
        tp = ", ".join(f"{v:g} with {c} clients" for c, v in report.tp.items())
        pp = ", ".join(f"{v:g} with {c}" for c, v in reported_pipeline(wish).items())
        yield (
            f"This model on this machine was reported: TP{wish.gpus} {tp}; "
            f"PP{wish.gpus} {pp} (stock, async depth 8). Predictions of both go "
            "through those figures; other layouts are estimated from data sheets."
        )
    else:
        yield (
            "Nothing was measured for this model on these GPUs: stage times are "
            "estimated from shapes and data sheets, to about a third."
        )
    if pipeline is not None and best.pp == 1:
        sure = best.low > pipeline.high
        yield (
            f"{best.name} wins at {wish.clients} clients: {best.tok_s:.1f} tok/s"
            f"{' (reported)' if best.reported else ''} against {pipeline.tok_s:.0f} "
            f"({pipeline.low:.0f} to {pipeline.high:.0f}) of {pipeline.name}"
            + ("." if sure else ", within the uncertainty: try both.")
        )
    elif pipeline is not None:
        others = [layout for layout in found if layout.pp == 1 and layout.fits]
        if others and others[0].high > pipeline.low:
            yield (
                f"{others[0].name} may be as good ({others[0].low:.0f} to "
                f"{others[0].high:.0f} tok/s): try both."
            )
    for layout in found:
        if not layout.fits:
            yield f"{layout.name} does not fit into memory."
    need = wish.clients * (wish.prompt + wish.output)
    if best.kv_tokens < need:
        yield (
            f"KV of {best.name} holds about {best.kv_tokens} tokens, {wish.clients} "
            f"clients need {need}: requests will wait."
        )
