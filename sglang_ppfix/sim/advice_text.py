"""An advice as people read it."""

from rich.console import Console
from rich.table import Table

from .advice import Advice
from .advice_value import Choice
from .layouts import Layout, Wish
from .server import default_chunk


def print_advice(advice: Advice, console: Console) -> None:
    """Layouts, choices, commands and notes, to ``console``."""
    wish = advice.wish
    console.print(_what(wish), highlight=False)
    table = Table(title="Layouts", title_justify="left")
    for column in ("layout", "tok/s", "low - high", "ms per token", "KV tokens"):
        table.add_column(column, justify="left" if column == "layout" else "right")
    for layout in advice.layouts:
        table.add_row(*_layout_cells(layout, layout is advice.best))
    console.print(table)
    if advice.pipeline is not None:
        console.print(_choices(advice))
        console.print(_settings(advice, advice.pipeline), highlight=False)
    for note in advice.notes:
        console.print(f"- {note}", highlight=False)
    for number, command in enumerate(advice.commands):
        console.print("or, as a pipeline:" if number else "command:", highlight=False)
        console.print(f"  {command}", highlight=False, soft_wrap=True)


def _layout_cells(layout: Layout, best: bool) -> tuple[str, str, str, str, str]:
    name = layout.name + (" <-" if best else "")
    if not layout.fits:
        return (name, "", "", "", "does not fit")
    return (
        name,
        f"{layout.tok_s:.1f}{' reported' if layout.reported else ''}",
        f"{layout.low:.0f} - {layout.high:.0f}",
        f"{layout.figures.tpot_ms:.1f}",
        f"{layout.kv_tokens:,}",
    )


def _settings(advice: Advice, pipeline: Layout) -> str:
    sizes = ", ".join(map(str, advice.graph_sizes))
    own = default_chunk(advice.wish.gpu.memory)
    slots = f"target slots {advice.target_slots}, " if pipeline.plugin else ""
    depth = f"async depth {pipeline.depth}" if pipeline.depth else "no async depth"
    return (
        f"{slots}micro-batches of at most {advice.cap} (CUDA graphs that can be used: "
        f"{sizes}), {depth}, "
        f"chunk size {pipeline.chunk or f'as SGLang sets it ({own})'}"
    )


def _what(wish: Wish) -> str:
    model = wish.model
    experts = f", {model.experts} experts top-{model.top_k}" if model.is_moe else ""
    return (
        f"{model.name}: {model.layers} layers{experts}, "
        f"{model.bytes / 2**30:.0f} GiB of weights; {wish.gpus} x {wish.gpu.name} over "
        f"{wish.link.name}; {wish.clients} clients, prompts of {wish.prompt}, answers "
        f"of {wish.output} tokens. All figures without 'reported' are simulated."
    )


def _choices(advice: Advice) -> Table:
    assert advice.pipeline is not None
    table = Table(
        title=f"What each choice is worth, {advice.pipeline.name}", title_justify="left"
    )
    for column in ("choice", "setting"):
        table.add_column(column)
    for column in ("tok/s", "ms per token", "gain", "gain, low - high"):
        table.add_column(column, justify="right")
    for choice in advice.choices:
        table.add_row(*_cells(choice))
    table.add_section()
    for verdict, choices in (("unsure", advice.unsure), ("not", advice.rejected)):
        for choice in choices:
            what, *rest = _cells(choice)
            table.add_row(f"{verdict}: {what}", *rest)
    return table


def _cells(choice: Choice) -> tuple[str, ...]:
    if choice.gain is None or choice.gain_low is None or choice.gain_high is None:
        gain = spread = ""
    else:
        gain = f"{100 * choice.gain:+.0f} %"
        spread = f"{100 * choice.gain_low:+.0f} to {100 * choice.gain_high:+.0f} %"
    figures = f"{choice.tok_s:.0f}", f"{choice.tpot_ms:.1f}"
    return (choice.what, choice.setting, *figures, gain, spread)
