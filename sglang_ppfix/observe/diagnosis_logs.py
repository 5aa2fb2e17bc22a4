"""From logs and hints to a report."""

from collections.abc import Mapping, Sequence

from .diagnosis import conclude, diagnose_points
from .diagnosis_config import Hints, build, given_points
from .diagnosis_context import Context, Facts
from .diagnosis_types import Report
from .log_levels import LoadHints, operating_points, timeline
from .log_pipeline import PipelineLog
from .log_ranks import compare_digests
from .log_reader import LogReader, Run


def diagnose_logs(
    paths: Sequence[str],
    hints: Hints,
    live: Mapping[str, object] | None = None,
    clients: float | None = None,
) -> Report:
    """Diagnose logs; the pipeline that generated most is the report's subject.

    Args:
        paths: files, plain or gzip; ``-`` is standard input. May be empty: then the
            hints alone are diagnosed.
        hints: what the user knows.
        live: configuration of the same server, from itself, by SGLang's names.
        clients: requests in flight as the live server shows them.

    Raises:
        LogInputError: a file cannot be read.
    """
    reader = LogReader()
    reader.read(paths)
    reports = []
    for run in reader.runs():
        for pipeline in run.pipelines.values():
            report = diagnose_pipeline(
                run, pipeline, reader, hints, live or {}, clients
            )
            reports.append((pipeline.generated, pipeline.decode_lines, report))
    if not reports:
        config = None
        runs = reader.runs()
        if runs:
            config = build(hints, runs[-1].config, live or {}, (), False)
        report = diagnose_points(hints, config)
        report.input = _input(reader, None)
        return report
    reports.sort(key=lambda item: item[:2], reverse=True)
    main = reports[0][2]
    main.others = [
        {
            "pipeline": other.input.get("pipeline"),
            "verdict": other.verdict.value,
            "decode_lines": lines,
        }
        for _, lines, other in reports[1:]
    ]
    return main


def diagnose_pipeline(
    run: Run,
    pipeline: PipelineLog,
    reader: LogReader,
    hints: Hints,
    live: Mapping[str, object],
    clients: float | None,
) -> Report:
    """Diagnose one pipeline of a log."""
    tags, dp_rank = next(k for k, p in run.pipelines.items() if p is pipeline)
    ranks = tuple(sorted(pipeline.steps.ranks)) if "PP" in tags else ()
    untagged = pipeline.plain and "PP" not in tags
    config = build(hints, run.config, live, ranks, untagged)
    peers = sum(1 for other in run.pipelines if other[0] == tags)
    if hints.clients is not None:
        clients = hints.clients
    elif clients is None and not hints.points.keys() <= {1}:
        clients = max(hints.points)
    load = LoadHints(
        clients=None if clients is None else max(round(clients / peers), 1),
        max_running_requests=config.max_running_requests,
        interval=config.decode_log_interval,
        cap=config.cap,
        loop_size=config.loop_size,
    )
    points = operating_points(pipeline, load, answers_count=peers == 1)
    facts = _facts(run, pipeline, reader, ranks)
    given = given_points(config, hints)
    context = Context(config, points, facts, given)
    remarks = use_given_rates(context)
    report = conclude(context)
    report.notes += remarks
    report.timeline = timeline(pipeline, load, answers_count=peers == 1)
    name = " ".join(sorted(tags)) + (f", DP{dp_rank}" if "DP" in tags else "")
    label = f"{run.source} {name}".strip()
    report.input = _input(reader, pipeline) | {"pipeline": label}
    return report


def use_given_rates(context: Context) -> list[str]:
    """Rates that the user's client measured replace the log's own."""
    remarks = []
    for given in context.given:
        for point in context.points:
            if given.in_flight is None or point.in_flight is None:
                continue
            near = abs(given.in_flight.value - point.in_flight.value)
            if near > 0.1 * given.in_flight.value + 0.5 or not given.tok_s:
                continue
            logged, point.tok_s = point.tok_s, given.tok_s
            if logged and abs(logged / given.tok_s - 1.0) > 0.1:
                remarks.append(
                    f"decode lines show {logged:.0f} tok/s, your client measured "
                    f"{given.tok_s:g}: predictions start from the latter (the lines "
                    "leave out prefill, ramp and client time)"
                )
    return remarks


def _facts(
    run: Run, pipeline: PipelineLog, reader: LogReader, ranks: tuple[int, ...]
) -> Facts:
    lines, clock = pipeline.steps, pipeline.stage_clock
    busy = clock or pipeline.occupancy
    harmed = {"binary line", "torn line", "half line", "bad number"}
    return Facts(
        stage_busy={r: total / count for r, (total, count) in busy.items()},
        busy_source=(
            "the plugin's stage clock" if clock else "fwd occupancy of the log"
        ),
        stage_weights_gb=dict(run.config.weight_gb),
        divergences=[
            *lines.divergences.values(),
            *compare_digests(pipeline.digests),
        ],
        clean_log=not lines.lost_lines and not harmed & reader.skipped.reasons.keys(),
        hang_lines=run.config.hang_lines,
        retractions=run.config.retractions,
        two_servers=pipeline.strange_rises > max(0.1 * pipeline.decode_lines, 5),
        plugin=pipeline.slots is not None,
        has_log=True,
        decode_lines=pipeline.decode_lines,
        prefill_lines=pipeline.prefill_lines,
        new_seqs_per_prefill=pipeline.requests / max(pipeline.prefill_lines, 1),
        pp_ranks=ranks,
        tagged=bool(ranks),
        plain=pipeline.plain,
    )


def _input(reader: LogReader, pipeline: PipelineLog | None) -> dict[str, object]:
    found: dict[str, object] = {
        "bytes": reader.count.bytes,
        "lines": reader.count.lines,
        "batch_lines": reader.batch_lines,
        "skipped": dict(sorted(reader.skipped.reasons.items())),
    }
    if pipeline is not None:
        found["decode_lines_of_lead_rank"] = pipeline.decode_lines
        found["lines_compared_over_ranks"] = pipeline.steps.compared
        found["lines_lost"] = pipeline.steps.lost_lines
    return found
