"""An advice as people read it."""

from rich.console import Console
from rich.table import Table

from .advice import Advice
from .advice_choices import Choice
from .layouts import Wish


def print_advice(advice: Advice, console: Console) -> None:
    """Layouts, choices, commands and notes, to ``console``."""
    wish = advice.wish
    console.print(_what(wish), highlight=False)
    table = Table(title="Layouts", title_justify="left")
    for column in ("layout", "tok/s", "low - high", "ms per token", "KV tokens"):
        table.add_column(column, justify="left" if column == "layout" else "right")
    for layout in advice.layouts:
        mark = " <-" if layout is advice.best else ""
        table.add_row(
            layout.name + mark,
            f"{layout.tok_s:.1f}{' reported' if layout.reported else ''}",
            f"{layout.low:.0f} - {layout.high:.0f}",
            f"{layout.tpot_ms:.1f}",
            f"{layout.kv_tokens:,}" if layout.fits else "does not fit",
        )
    console.print(table)
    if advice.pipeline is not None:
        console.print(_choices(advice))
        sizes = ", ".join(map(str, advice.graph_sizes))
        chunk = advice.chunk or "as SGLang sets it, others are not better"
        console.print(
            f"target slots {advice.target_slots}, micro-batches of at most {advice.cap}"
            f" (CUDA graphs that can be used: {sizes}), no async depth, chunk size "
            f"{chunk}",
            highlight=False,
        )
    for note in advice.notes:
        console.print(f"- {note}", highlight=False)
    for number, command in enumerate(advice.commands):
        console.print("or, as a pipeline:" if number else "command:", highlight=False)
        console.print(f"  {command}", highlight=False, soft_wrap=True)


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
    for column in ("tok/s", "gain", "gain, low - high"):
        table.add_column(column, justify="right")
    for choice in advice.choices:
        table.add_row(*_cells(choice))
    table.add_section()
    for choice in advice.rejected:
        what, setting, *rest = _cells(choice)
        table.add_row(f"not: {what}", setting, *rest)
    return table


def _cells(choice: Choice) -> tuple[str, str, str, str, str]:
    if choice.gain is None or choice.gain_low is None or choice.gain_high is None:
        gain = spread = ""
    else:
        gain = f"{100 * choice.gain:+.0f} %"
        spread = f"{100 * choice.gain_low:+.0f} to {100 * choice.gain_high:+.0f} %"
    return (choice.what, choice.setting, f"{choice.tok_s:.0f}", gain, spread)
