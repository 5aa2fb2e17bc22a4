"""The settings of a pipeline, tried one on top of the other."""

from dataclasses import dataclass, field, replace

from .advice_value import Choice, Figures, choice_of, figures_of
from .layouts import Layout, Wish, default_split, readings_for, server_for
from .sweep import Case, row_of, without_bounds

#: What switches the plugin on.
PLUGIN = "SGLANG_PPFIX=1"
_CHUNKS = (256, 512, 1024, 2048, 4096)
# Chunks that differ by less are taken for alike.
_ALIKE = 0.01


@dataclass
class _Trials:
    """A case as it grows.

    Attributes:
        goal: of the user.
        case: with all settings kept so far.
        figures: of that case.
        kept: the settings that pay for sure, in order.
        unsure: settings that gain under some readings and cost under others.
        rejected: settings that gain nothing.
    """

    goal: str
    case: Case
    figures: list[Figures]
    kept: list[Choice] = field(default_factory=list)
    unsure: list[Choice] = field(default_factory=list)
    rejected: list[Choice] = field(default_factory=list)

    def offer(self, what: str, setting: str, case: Case) -> bool:
        """Keep a setting if it is sure to pay; returns whether it was kept."""
        figures = figures_of(case)
        choice = choice_of(what, setting, self.goal, figures, self.figures)
        if choice.sure:
            self.kept.append(choice)
            self.case, self.figures = case, figures
        else:
            (self.rejected if choice.useless else self.unsure).append(choice)
        return choice.sure


def tuned(wish: Wish, layout: Layout) -> Layout:
    """A pipeline with the settings that pay, and what each of them is worth."""
    default = default_split(wish, layout.pp)
    # Where SGLang's own split leaves no room for KV there is nothing to start from.
    start = default if wish.holds(wish.kv_tokens(layout.tp, default)) else layout.layers
    server = server_for(wish, replace(layout, layers=start))
    case = Case("stock", server, wish.load(), readings_for(wish, layout, start))
    trials = _Trials(wish.goal, case, figures_of(case))
    first = ("SGLang's defaults", "")
    if start != default:
        first = ("SGLang with layers that fit", _partition(start))
    trials.kept.append(choice_of(*first, wish.goal, trials.figures))
    plugin = trials.offer("even filling", PLUGIN, replace(case, policy="balanced"))
    layers = start
    if layout.layers != start and wish.holds(layout.kv_tokens):
        split = replace(
            trials.case,
            server=server_for(wish, layout),
            readings=readings_for(wish, layout, layout.layers),
        )
        setting = _partition(layout.layers)
        if trials.offer("layers, lm_head counted", setting, split):
            layers = layout.layers
    chunk = best_chunk(wish, trials.case)
    if chunk is not None and not trials.offer(
        "chunk size",
        f"--chunked-prefill-size {chunk}",
        _with(trials.case, chunked_prefill_size=chunk),
    ):
        chunk = None
    depth = _offer_depths(trials, layout.pp)
    figures = trials.figures
    return replace(
        layout,
        layers=layers,
        kv_tokens=wish.kv_tokens(layout.tp, layers),
        figures=figures[0],
        bounds=tuple(figures),
        plugin=plugin,
        chunk=chunk,
        depth=depth,
        choices=tuple(trials.kept),
        unsure=tuple(trials.unsure),
        rejected=tuple(trials.rejected),
    )


def best_chunk(wish: Wish, case: Case) -> int | None:
    """The chunk that serves the goal best; of those alike, with even token times.

    Returns:
        None where SGLang's own is as good, or the prompts are shorter than any chunk.
    """
    own = case.server.chunked_prefill_size
    cases: dict[int | None, Case] = {None: case}
    for chunk in _CHUNKS:
        if chunk < wish.prompt and (own is None or chunk < own):
            cases[chunk] = _with(case, chunked_prefill_size=chunk)
    worths = {chunk: _worth(wish.goal, one) for chunk, one in cases.items()}
    most = max(merit for merit, _ in worths.values())
    alike = [c for c, (merit, _) in worths.items() if merit >= most * (1 - _ALIKE)]
    if None in alike:
        return None
    return min(alike, key=lambda chunk: worths[chunk][1])


def _worth(goal: str, case: Case) -> tuple[float, float]:
    """Merit of the central reading, and its slowest tokens."""
    row = row_of(replace(case, readings=without_bounds(case.readings)))
    merit = Figures(row["tok_s"], row["tpot_ms"] or 0.0).merit(goal)
    return merit, row["tpot_p99_ms"] or 0.0


def _offer_depths(trials: _Trials, pp: int) -> int:
    """Async depth 1 and the number of stages: the best of those that pay, or 0."""
    depths = sorted({1, pp})
    merits = {
        depth: _worth(trials.goal, _with(trials.case, async_depth=depth))[0]
        for depth in depths
    }
    chosen = 0
    # The better one first: the other must then gain on top of it.
    for depth in sorted(depths, key=lambda depth: -merits[depth]):
        name, setting = f"async depth {depth}", f"--pp-async-batch-depth {depth}"
        case = _with(trials.case, async_depth=depth)
        if trials.offer(name, setting, case):
            chosen = depth
    return chosen


def _partition(layers: tuple[int, ...]) -> str:
    return f"SGLANG_PP_LAYER_PARTITION={','.join(map(str, layers))}"


def _with(case: Case, **settings: int) -> Case:
    return replace(case, server=replace(case.server, **settings))  # type: ignore[arg-type]
