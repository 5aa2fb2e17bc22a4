"""What each setting of a pipeline is worth, one on top of the other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from .layouts import Layout, Wish, default_split, readings_for, server_for
from .presets import Reading
from .sweep import Case, row_of

#: What switches the plugin on.
PLUGIN = "SGLANG_PPFIX=1"
# A gain below this is no reason to set anything.
_PAYS = 0.01


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


def choices_for(wish: Wish, layout: Layout) -> list[Choice]:
    """Stock, then each setting that helps, on top of those before it."""
    server, default = server_for(wish, layout), default_split(wish, layout.pp)
    plain = readings_for(wish, layout, default)
    split = readings_for(wish, layout, layout.layers)
    load = wish.load()
    steps: list[tuple[str, str, Case]] = [
        ("SGLang's defaults", "", Case("stock", server, load, plain)),
        ("even filling", PLUGIN, Case("balanced", server, load, plain)),
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


def rejected_for(wish: Wish, layout: Layout) -> list[Choice]:
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


def even_filling_pays(choices: Sequence[Choice]) -> bool:
    """Whether even filling gains something under at least one reading."""
    gains = [choice.gain_high for choice in choices if choice.setting == PLUGIN]
    return any(gain is not None and gain >= _PAYS for gain in gains)
