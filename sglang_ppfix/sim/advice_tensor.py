"""Tensor parallelism alone: a formula, or what somebody reported."""

from dataclasses import replace

from .advice_value import Figures
from .layouts import Layout, Wish
from .reports import between, report_for
from .roofline import SPREAD, estimate


def tensor_parallel(wish: Wish, layout: Layout) -> Layout:
    """One batch of all clients that the KV pool holds, prompts in between."""
    batch = in_flight(wish, layout)
    profile = estimate(
        wish.model, wish.gpu, wish.link, layout.layers, layout.tp, wish.context
    )
    prefill = profile.prefill[0](wish.prompt)
    report = report_for(wish)
    if report is not None:
        tok_s, exact = between(report.tp, batch), batch in report.tp
        spread = 1.03 if exact else 1.25
    else:
        step = profile.decode[0](batch) + profile.cpu.launch
        # The prefill says the first token.
        time = (wish.output - 1) * step + batch * prefill
        tok_s, exact, spread = batch * wish.output / time, False, 1 + SPREAD
    figures = Figures(tok_s, 1e3 * _time_per_token(wish, batch, tok_s, prefill))
    bounds = (
        Figures(tok_s / spread, figures.tpot_ms * spread),
        Figures(tok_s * spread, figures.tpot_ms / spread),
    )
    return replace(layout, figures=figures, bounds=bounds, reported=exact)


def in_flight(wish: Wish, layout: Layout) -> int:
    """Clients whose requests the KV pool holds at a time."""
    held = layout.kv_tokens // (wish.prompt + wish.output)
    return max(min(wish.clients, held), 1)


def _time_per_token(wish: Wish, batch: int, tok_s: float, prefill: float) -> float:
    """Seconds per token after the first, as the simulator counts them.

    A request holds its place for ``batch * output / tok_s`` seconds; its own prompt is
    not part of the time per token, the prompts of the others are.
    """
    if wish.output < 2:
        return 0.0
    return max(batch * wish.output / tok_s - prefill, 0.0) / (wish.output - 1)
