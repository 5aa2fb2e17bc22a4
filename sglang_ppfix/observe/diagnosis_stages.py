"""Rules about the stages: uneven layers, prefills that stretch laps, diverged ranks."""

from . import diagnosis_advice as advice
from .diagnosis_context import Context
from .diagnosis_law import HEAD_SHARE, experts_touched
from .diagnosis_layers import default_partition, shown
from .diagnosis_types import Finding, Fix, OperatingPoint, Prediction, Verdict

#: Busiest stage over the mean from which stages count as uneven.
_UNEVEN_BUSY = 1.12
#: The same for layers plus output head, which are only computed.
_UNEVEN_LAYERS = 1.05
_STRETCHED = 0.25
#: Weight of what costs nothing yet, or is computed only: never the main verdict.
_HIDDEN = 0.025


def uneven_layers(context: Context, point: OperatingPoint) -> Finding | None:
    """One stage works longer than the others."""
    measured = _measured(context, point)
    return measured if measured is not None else _computed(context)


def _measured(context: Context, point: OperatingPoint) -> Finding | None:
    busy = context.facts.stage_busy
    if len(busy) < max(context.pp_size, 2):
        return None
    mean = sum(busy.values()) / len(busy)
    slowest = max(busy, key=lambda rank: busy[rank])
    ratio = busy[slowest] / mean if mean > 0 else 1.0
    if ratio < _UNEVEN_BUSY:
        return None
    shares = ", ".join(f"PP{r} {busy[r]:.0%}" for r in sorted(busy))
    filled = point.filled.value if point.filled is not None else 0.0
    evidence = [f"busy share of the stages ({context.facts.busy_source}): {shares}"]
    full = filled >= context.pp_size - 0.6
    if not full:
        evidence.append("hidden while slots are empty; it counts once they are filled")
    predictions = []
    if full and point.tok_s:
        # The slowest stage can get no faster than the mean of all.
        most = min(ratio, 1.0 / max(busy[slowest], 0.5) * ratio)
        predictions.append(
            Prediction(
                "stages of equal length",
                point.tok_s,
                point.tok_s * (1.0 + (most - 1.0) * min(busy[slowest], 1.0)),
                point.tok_s * most,
                point.tok_s,
                "busiest stage over the mean of all stages",
            )
        )
    fixes = [_partition_fix(context)]
    return Finding(
        Verdict.UNEVEN_LAYERS,
        0.85 if full else 0.6,
        f"stage PP{slowest} works longer than the others",
        evidence,
        predictions,
        fixes,
        weight=(ratio - 1.0) if full else _HIDDEN,
    )


def _partition_fix(context: Context) -> Fix:
    fix = advice.split_layers(context, _head_layers(context))
    if fix is not None:
        return fix
    return Fix(
        "SGLANG_PP_LAYER_PARTITION=n,n,...",
        "fewer layers on the busy stage (give --layers for the numbers)",
    )


def _head_layers(context: Context) -> float:
    """Output head and sampling, in layers of work, at the even micro-batch size."""
    layers = context.config.layers or 1
    share = sum(HEAD_SHARE) / 2
    single, main = context.single_lap_s(), context.main
    curves = context.curves(main) if main is not None else None
    ideal = context.ideal(main) if main is not None else None
    if single is not None and curves is not None and ideal is not None:
        layer_s = (context.pp_size * curves.fast(ideal) - share * single) / layers
        return share * single / layer_s if layer_s > 0 else 0.0
    # Layers take longer with more requests, by an unknown amount; the head does not.
    experts, top_k = context.config.experts, context.config.top_k
    slower = 1.0
    if experts and top_k and ideal is not None:
        slower = (1.0 + experts_touched(ideal, experts, top_k) / top_k) / 2
    return share / (1.0 - share) * layers / slower


def _computed(context: Context) -> Finding | None:
    """From the layer split alone: a warning, not a measurement."""
    config = context.config
    layers, pp_size = config.layers, context.pp_size
    split = config.partition
    if split is None and layers is not None:
        split = default_partition(layers, pp_size)
    if split is None or len(split) != pp_size:
        return None
    head = _head_layers(context)
    loads = [float(count) for count in split]
    loads[-1] += head
    ratio = max(loads) / (sum(loads) / pp_size)
    if ratio < _UNEVEN_LAYERS:
        return None
    slowest = loads.index(max(loads))
    origin = "given" if config.partition is not None else "SGLang's default"
    evidence = [
        (
            f"{sum(split)} layers as {shown(split)} ({origin}), and the last stage "
            f"also does the output head, about {head:.1f} layers of work: stage "
            f"PP{slowest} takes {ratio:.2f} times the mean"
        ),
        "not measured; hidden while slots are empty, the bottleneck once they are full",
    ]
    weights = context.facts.stage_weights_gb
    if len(weights) == pp_size:
        shares = ", ".join(f"PP{r} {weights[r]:.1f}" for r in sorted(weights))
        evidence.append(f"weights of the stages in GB: {shares}")
    return Finding(
        Verdict.UNEVEN_LAYERS,
        0.5,
        "the layer split makes the last stage the slowest"
        if slowest == pp_size - 1
        else "the layer split is uneven",
        evidence,
        [],
        [_partition_fix(context)],
        weight=_HIDDEN,
    )


def prefill_stretched(context: Context, point: OperatingPoint) -> Finding | None:
    """Prefills take a large part of the laps of all slots."""
    stretch = point.stretch
    if stretch is None or stretch < _STRETCHED or not point.tok_s:
        return None
    evidence = [
        (
            f"prefills take about {stretch:.0%} of the time of the laps (least squares "
            "over the decode lines: time against prefilled tokens)"
        ),
        "a prefill in one slot stretches the lap for every request in all slots",
    ]
    together = context.facts.new_seqs_per_prefill
    most = point.tok_s / (1.0 - stretch)
    share = 1.0 - 1.0 / max(min(together, float(context.pp_size)), 1.0)
    best = point.tok_s / (1.0 - stretch * share)
    evidence.append(f"{together:.1f} prompts per prefill on average")
    prediction = Prediction(
        "prompts spread over the slots of a lap",
        point.tok_s,
        best,
        most,
        point.tok_s,
        "upper end: prefills cost decoding nothing",
    )
    return Finding(
        Verdict.PREFILL_STRETCHED,
        round(0.8 * min(1.0, 0.5 + stretch), 2),
        "prefills stretch the laps",
        evidence,
        [prediction],
        advice.shorter_prefills(context),
        weight=max(best / point.tok_s - 1.0, 0.5 * stretch),
    )


def ranks_diverged(context: Context) -> Finding | None:
    """PP ranks that did not run the same batches."""
    facts = context.facts
    # One line may be torn or lost; where none was, one that differs is enough.
    least = 1 if facts.clean_log else 2
    sure = [d for d in facts.divergences if d.lines >= least and not d.at_end]
    ends = [d for d in facts.divergences if d.at_end]
    if not sure and not (ends and (facts.hang_lines or facts.clean_log)):
        return None
    first = min(sure or ends, key=lambda d: d.second)
    evidence = [
        (
            f"batch line {first.ordinal + 1} of PP{first.rank}: {first.seen}; PP"
            f"{first.reference} printed there: {first.expected}"
        ),
        f"ranks that differ: {', '.join(f'PP{d.rank}' for d in sure or ends)}",
    ]
    if facts.hang_lines:
        evidence.append(f"{facts.hang_lines} watchdog lines about hung collectives")
    certain = bool(sure) and (facts.clean_log or max(d.lines for d in sure) > 5)
    return Finding(
        Verdict.RANKS_DIVERGED,
        0.95 if certain or facts.hang_lines else 0.6,
        "PP ranks ran different batches",
        evidence,
        [],
        [
            Fix(
                "sglang >= 0.5.16",
                "before it, grammar and prefix decisions could differ between ranks "
                "(issues 28424, 30747, 34572)",
            ),
            Fix(
                "the same plugins and settings on every rank",
                "every rank must take the same decision in the same iteration",
            ),
        ],
        weight=10.0,
    )
