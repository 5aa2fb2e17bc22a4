"""An advice in words: command lines and notes."""

from collections.abc import Iterator

from .advice_choices import PLUGIN
from .layouts import Layout, Wish, default_split, server_for
from .reports import report_for, reported_pipeline

# All sizes up to here get a CUDA graph of their own; above, multiples of four.
_EVERY_SIZE = 16


def graph_sizes(cap: int) -> list[int]:
    """Micro-batch sizes worth a CUDA graph when no slot holds more than ``cap``."""
    sizes = list(range(1, min(cap, _EVERY_SIZE) + 1))
    sizes += list(range(_EVERY_SIZE + 4, cap + 4, 4))
    return sizes


def command_line(
    wish: Wish,
    layout: Layout,
    chunk: int | None,
    cap: int | None,
    plugin: bool = True,
) -> str:
    words = []
    if layout.pp > 1:
        if plugin:
            words.append(PLUGIN)
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


def notes_on(
    wish: Wish,
    found: list[Layout],
    best: Layout,
    pipeline: Layout | None,
    even: bool = True,
) -> Iterator[str]:
    if pipeline is not None and not even:
        yield (
            f"Even filling is worth nothing on {pipeline.name}: its stage time hardly "
            "grows with the micro-batch. The plugin is left off."
        )
    report = report_for(wish)
    if report is not None:
        tp = ", ".join(f"{v:g} with {c} clients" for c, v in report.tp.items())
        pp = ", ".join(f"{v:g} with {c}" for c, v in reported_pipeline(wish).items())
        yield (
            f"This model on this machine was reported: TP{wish.gpus} {tp}; "
            f"PP{wish.gpus} {pp} (stock, async depth 8), for requests of unknown "
            f"length. Predictions of both go through those figures, for prompts of "
            f"{wish.prompt} and answers of {wish.output} tokens; other layouts are "
            "estimated from data sheets."
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
