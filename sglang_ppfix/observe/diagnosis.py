"""All rules over one pipeline, the main verdict, the report."""

from . import diagnosis_depth, diagnosis_limits, diagnosis_slots, diagnosis_stages
from .diagnosis_config import Hints, build, given_points
from .diagnosis_context import Context, Facts
from .diagnosis_evidence import missing, notes, ruled_out
from .diagnosis_types import (
    Configuration,
    Finding,
    Measured,
    OperatingPoint,
    Report,
    Verdict,
)

#: A finding that would bring less than this does not make a server unhealthy.
_LEAST_WEIGHT = 0.03


def diagnose_points(hints: Hints, config: Configuration | None = None) -> Report:
    """Diagnose what the user measured, without any log."""
    config = config if config is not None else build(hints, None, {}, (), False)
    points = given_points(config, hints)
    return diagnose_reported(config, points)


def diagnose_reported(config: Configuration, points: list[OperatingPoint]) -> Report:
    """Diagnose load levels that somebody reports (``given_point``)."""
    return conclude(Context(config, points, Facts(), points))


def conclude(context: Context) -> Report:
    """Apply every rule and choose the main verdict."""
    config = context.config
    early = _without_load(context)
    findings = early if early is not None else _apply(context)
    _memory_first(findings)
    findings.sort(key=lambda f: f.weight, reverse=True)
    lacking = missing(context)
    main = context.main
    worth = [f for f in findings if f.weight >= _LEAST_WEIGHT]
    if worth:
        verdict, confidence = worth[0].verdict, worth[0].confidence
    elif early is not None:
        verdict, confidence = early[0].verdict, early[0].confidence
    elif main is None or main.in_flight is None or main.filled is None:
        verdict, confidence = Verdict.NOT_ENOUGH_DATA, 1.0
    else:
        verdict, confidence = Verdict.HEALTHY, round(main.confidence, 2)
    if verdict is Verdict.NOT_ENOUGH_DATA and not lacking:
        lacking = ["a log with decode lines at a known number of clients"]
    report = Report(
        verdict,
        confidence,
        "",
        config,
        context.points,
        findings,
        ruled_out(context, findings) if early is None else [],
        lacking if verdict in (Verdict.NOT_ENOUGH_DATA, Verdict.HEALTHY) else [],
        notes(context),
        main=main,
    )
    report.summary = _summary(report, context)
    return report


def _memory_first(findings: list[Finding]) -> None:
    """Where KV cache keeps requests waiting, that comes before how the rest lie."""
    for finding in findings:
        if finding.verdict is Verdict.MEMORY_LIMITED and finding.binding:
            finding.weight = max(f.weight for f in findings) + 0.01


def _without_load(context: Context) -> list[Finding] | None:
    """Verdicts that need no load: None when the load must be looked at."""
    facts, config = context.facts, context.config
    diverged = diagnosis_stages.ranks_diverged(context)
    if diverged is not None and not facts.two_servers:
        return [diverged]
    if config.pp_size == 1:
        return [
            Finding(
                Verdict.NO_PIPELINE,
                0.95,
                "the server runs no pipeline",
                [f"one stage ({config.origin.get('pp_size', 'pp_size 1')})"],
                weight=_LEAST_WEIGHT,
            )
        ]
    if facts.two_servers or config.pp_size is None:
        return [_no_data(context)]
    if config.disaggregation == "prefill":
        return [_no_data(context)]
    return None


def _no_data(context: Context) -> Finding:
    lacking = missing(context)
    title = f"not enough data: {lacking[0]}" if lacking else "not enough data"
    return Finding(Verdict.NOT_ENOUGH_DATA, 1.0, title, lacking)


def _apply(context: Context) -> list[Finding]:
    """The strongest finding of each kind over the load levels."""
    best: dict[Verdict, Finding] = {}
    per_point = (
        diagnosis_slots.slots_not_filled,
        diagnosis_depth.async_depth,
        diagnosis_limits.memory_limited,
        diagnosis_limits.cap_too_small,
        diagnosis_stages.prefill_stretched,
    )
    only_main = (diagnosis_stages.uneven_layers, diagnosis_limits.client_limited)
    main = context.main
    points = sorted(context.lasting, key=lambda point: point is not main)
    for point in points:
        rules = per_point + (only_main if point is main else ())
        for rule in rules:
            finding = rule(context, point)
            if finding is None:
                continue
            finding.weight *= min(1.0, 2.0 * point.share)
            old = best.get(finding.verdict)
            if old is None or finding.weight > old.weight:
                best[finding.verdict] = finding
    return list(best.values())


def _summary(report: Report, context: Context) -> str:
    """One sentence for the top of the report."""
    main = context.main
    if report.verdict is Verdict.HEALTHY and main is not None:
        return (
            f"{_count(main.in_flight)} requests in flight fill "
            f"{_count(main.filled)} of {context.config.loop_size} slots about evenly"
        )
    top = next((f for f in report.findings if f.verdict is report.verdict), None)
    if top is None:
        return "not enough data: " + (report.missing[0] if report.missing else "")
    if not top.predictions:
        return top.title
    best = top.predictions[0]
    return (
        f"{top.title}; {best.what}: predicted {best.best:.0f} tok/s instead of "
        f"{best.base:.0f}"
    )


def _count(value: Measured | None) -> str:
    return "?" if value is None else f"{value.value:.3g}"
