"""An advice in words: command lines and notes."""

from collections.abc import Iterator
from dataclasses import replace

from .advice_choices import PLUGIN
from .advice_tensor import in_flight
from .layouts import Layout, Wish, default_split, refusals, server_for
from .reports import report_for, reported_pipeline

# All sizes up to here get a CUDA graph of their own; above, multiples of four.
_EVERY_SIZE = 16


def graph_sizes(cap: int) -> list[int]:
    """Micro-batch sizes worth a CUDA graph when no slot holds more than ``cap``."""
    sizes = list(range(1, min(cap, _EVERY_SIZE) + 1))
    sizes += list(range(_EVERY_SIZE + 4, cap + 4, 4))
    return sizes


def cap_of(wish: Wish, layout: Layout) -> int:
    """The largest micro-batch of a pipeline with its settings."""
    server = replace(server_for(wish, layout), async_depth=layout.depth)
    return server.derived_cap if layout.plugin else server.stock_cap


def command_line(wish: Wish, layout: Layout) -> str:
    """How to start a layout, with the settings that pay on it."""
    words = []
    if layout.plugin:
        words.append(PLUGIN)
    if layout.layers != default_split(wish, layout.pp):
        partition = ",".join(map(str, layout.layers))
        words.append(f"SGLANG_PP_LAYER_PARTITION={partition}")
    words += ["python -m sglang.launch_server", "--model-path MODEL"]
    words.append(f"--tp-size {layout.tp}")
    if layout.pp > 1:
        rows = server_for(wish, layout).max_running_requests
        words += [f"--pp-size {layout.pp}", f"--max-running-requests {rows}"]
        sizes = " ".join(map(str, graph_sizes(cap_of(wish, layout))))
        words.append(f"--cuda-graph-bs-decode {sizes}")
    if layout.depth:
        words.append(f"--pp-async-batch-depth {layout.depth}")
    if layout.chunk is not None:
        words.append(f"--chunked-prefill-size {layout.chunk}")
    return " ".join(words)


def notes_on(
    wish: Wish, found: list[Layout], best: Layout, pipeline: Layout | None
) -> Iterator[str]:
    """Facts and doubts, a sentence each."""
    if pipeline is not None:
        yield from _on_pipeline(wish, pipeline)
    yield _on_figures(wish)
    tensor = next((one for one in found if one.pp == 1 and one.fits), None)
    if pipeline is not None and tensor is not None:
        yield from _on_contest(wish, best, tensor, pipeline)
    yield from refusals(wish)
    for layout in found:
        if not layout.fits:
            yield f"{layout.name} does not fit into memory."
    need = wish.clients * (wish.prompt + wish.output)
    if best.kv_tokens < need:
        yield (
            f"KV of {best.name} holds about {best.kv_tokens} tokens, {wish.clients} "
            f"clients need {need}: about {in_flight(wish, best)} requests run at a "
            "time and the others wait. The figures count that."
        )


def _on_pipeline(wish: Wish, pipeline: Layout) -> Iterator[str]:
    if not pipeline.plugin:
        doubt = any(choice.setting == PLUGIN for choice in pipeline.unsure)
        worth = "of unsure worth" if doubt else "worth nothing"
        why = "its stage time hardly grows with the micro-batch"
        if in_flight(wish, pipeline) < wish.clients:
            why = "memory, not the slots, bounds the requests that run"
        yield (
            f"Even filling is {worth} on {pipeline.name}: {why}. The plugin is left "
            "off."
        )
    if pipeline.unsure:
        names = ", ".join(choice.what for choice in pipeline.unsure)
        yield (
            f"Not sure on {pipeline.name}: {names}. The range goes from a loss to a "
            "gain, so it is not in the command: try it."
        )
    yield (
        "--cuda-graph-bs-decode is known from SGLang 0.5.14 on; up to 0.5.13.post1 the "
        "same is called --cuda-graph-bs."
    )


def _on_figures(wish: Wish) -> str:
    report = report_for(wish)
    if report is None:
        return (
            "Nothing was measured for this model on these GPUs: stage times are "
            "estimated from shapes and data sheets, to about a third."
        )
    tp = ", ".join(f"{v:g} with {c} clients" for c, v in report.tp.items())
    pp = ", ".join(f"{v:g} with {c}" for c, v in reported_pipeline(wish).items())
    return (
        f"This model on this machine was reported: TP{wish.gpus} {tp}; "
        f"PP{wish.gpus} {pp} (stock, async depth 8), for requests of unknown "
        f"length. Predictions of both go through those figures, for prompts of "
        f"{wish.prompt} and answers of {wish.output} tokens; other layouts are "
        "estimated from data sheets."
    )


def _on_contest(
    wish: Wish, best: Layout, tensor: Layout, pipeline: Layout
) -> Iterator[str]:
    """Tensor parallelism against the pipeline, by the goal."""
    (slow, fast), (low, high) = tensor.merits(wish.goal), pipeline.merits(wish.goal)
    if best is tensor:
        yield (
            f"{tensor.name} wins at {wish.clients} clients: {_shown(wish, tensor)}"
            f"{' (reported)' if tensor.reported else ''} against "
            f"{_shown(wish, pipeline)} of {pipeline.name}"
            + ("." if slow > high else ", within the uncertainty: try both.")
        )
    elif best.pp > 1 and fast > low:
        yield f"{tensor.name} may be as good ({_shown(wish, tensor)}): try both."


def _shown(wish: Wish, layout: Layout) -> str:
    if wish.goal == "latency":
        times = [one.tpot_ms for one in layout.bounds]
        return (
            f"{layout.figures.tpot_ms:.1f} ms per token ({min(times):.1f} to "
            f"{max(times):.1f})"
        )
    return f"{layout.tok_s:.1f} tok/s ({layout.low:.0f} to {layout.high:.0f})"
