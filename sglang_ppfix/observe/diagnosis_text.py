"""A report as text for people and as plain data for programs."""

import math
import textwrap
from dataclasses import asdict
from typing import Any

from .diagnosis_types import (
    SCHEMA_VERSION,
    Configuration,
    Finding,
    Measured,
    OperatingPoint,
    Prediction,
    Report,
)

WIDTH = 88


def as_data(report: Report) -> dict[str, Any]:
    """Plain data of a report; the schema is in ``docs/diagnose.md``."""
    config = asdict(report.configuration)
    config["loop_size"] = report.configuration.loop_size
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": report.verdict.value,
        "confidence": report.confidence,
        "summary": report.summary,
        "configuration": config,
        "load": _point_data(report.main, report) if report.main else None,
        "operating_points": [_point_data(p, report) for p in report.points],
        "findings": [_finding_data(f) for f in report.findings],
        "ruled_out": report.ruled_out,
        "missing": report.missing,
        "notes": report.notes,
        "input": report.input,
        "other_pipelines": report.others,
    }


def _finding_data(finding: Finding) -> dict[str, Any]:
    return {
        "verdict": finding.verdict.value,
        "confidence": finding.confidence,
        "title": finding.title,
        "evidence": finding.evidence,
        "predictions": [
            {
                "what": p.what,
                "tok_s": {"low": _r(p.low), "best": _r(p.best), "high": _r(p.high)},
                "measured_tok_s": _r(p.base),
                "gain": round(p.gain, 3),
                "model": p.model,
            }
            for p in finding.predictions
        ],
        "fixes": [{"set": fix.set, "why": fix.why} for fix in finding.fixes],
    }


def _point_data(point: OperatingPoint, report: Report) -> dict[str, Any]:
    number, tok_s = point.in_flight, point.tok_s
    lap = number.value / tok_s if number is not None and tok_s else None
    pp_size = report.configuration.pp_size
    waiting = None
    if pp_size is not None and point.filled is not None:
        waiting = pp_size - min(round(point.filled.value), pp_size)
    return {
        "in_flight": _measured(number),
        "in_flight_source": point.source or None,
        "confidence": point.confidence,
        "clients_given": point.clients,
        "slots_filled": _measured(point.filled),
        "slots_total": report.configuration.loop_size,
        "occupancy": list(point.occupancy) if point.occupancy is not None else None,
        "largest_micro_batch": _measured(point.largest),
        "mean_micro_batch": _measured(point.mean_micro_batch),
        "logged_running_req": _measured(point.logged),
        "stages_waiting": waiting,
        "tok_s": _r(tok_s) if tok_s else None,
        "lap_ms": _r(1000.0 * lap) if lap else None,
        "queue_mean": _r(point.queue) if point.queue is not None else None,
        "token_usage_max": point.usage,
        "prefill_share": _r(point.stretch, 3) if point.stretch is not None else None,
        "seconds": _r(point.seconds),
        "decode_lines": point.lines,
        "share_of_busy_time": _r(point.share, 3),
    }


def _measured(value: Measured | None) -> dict[str, float] | None:
    if value is None:
        return None
    return {
        "value": _r(value.value, 2),
        "low": _r(value.low, 2),
        "high": _r(value.high, 2),
    }


def _r(value: float, digits: int = 1) -> float:
    return round(value, digits)


def as_text(report: Report) -> list[str]:
    """Lines of the report: plain, ``WIDTH`` columns, headings end in a colon."""
    lines = [f"{report.verdict.value} (confidence {report.confidence:.2f})"]
    lines += _wrap(report.summary, "  ")
    lines += ["", "Server:", *_server(report.configuration)]
    shown = [report.main] if report.main is not None else []
    shown += [p for p in report.points if p is not report.main]
    for point in shown:
        lines += ["", _load_heading(point), *_load(point, report.configuration)]
    for number, finding in enumerate(report.findings, start=1):
        words = f"{finding.verdict.value} (confidence {finding.confidence:.2f})"
        lines += ["", f"Finding {number}, {words}:", *_finding(finding)]
    for heading, words_ in (
        ("Not the limit:", report.ruled_out),
        ("Missing:", report.missing),
        ("Notes:", report.notes),
        ("Other pipelines in the input:", [_other(o) for o in report.others]),
        ("Input:", _input(report.input)),
    ):
        if words_:
            lines += ["", heading]
            for word in words_:
                lines += _wrap(word, "  - ", "    ")
    return lines


def _wrap(text: str, first: str, rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _server(config: Configuration) -> list[str]:
    origin = config.origin
    rows = [
        ("stages", config.pp_size, "pp_size"),
        ("async depth", config.async_depth, "async_depth"),
        ("slots", config.loop_size, ""),
        ("cap of a slot", config.cap, "cap"),
        ("max running requests", config.max_running_requests, "max_running_requests"),
        ("chunked prefill", config.chunked_prefill_size, "chunked_prefill_size"),
        ("model", config.model, "model"),
        ("layers", config.partition or config.layers, "layers"),
    ]
    lines = []
    for name, value, key in rows:
        if value is None:
            if name in ("stages", "max running requests", "cap of a slot"):
                lines.append(f"  {name:<22}not known")
            continue
        said = f"  ({origin[key]})" if key in origin else ""
        shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
        lines.append(f"  {name:<22}{shown}{said}"[:WIDTH])
    return lines


def _load_heading(point: OperatingPoint) -> str:
    if not point.lines:
        return f"Load, {point.clients} clients (given):"
    return (
        f"Load, {point.share:.0%} of the busy time ({point.seconds:.0f} s, "
        f"{point.lines} decode lines):"
    )


def _load(point: OperatingPoint, config: Configuration) -> list[str]:
    rows: list[tuple[str, str]] = []
    if point.in_flight is not None:
        rows.append(("in flight", _range(point.in_flight)))
        rows.append(("", point.source))
    else:
        rows.append(("in flight", "not known"))
    if point.filled is not None:
        total = config.loop_size
        filled = f"{_range(point.filled)} of {total if total else '?'}"
        if point.occupancy is not None:
            filled += f" ({'/'.join(map(str, point.occupancy))})"
        rows.append(("slots filled", filled))
    if point.largest is not None:
        rows.append(("largest micro-batch", _range(point.largest)))
    if point.mean_micro_batch is not None:
        rows.append(("mean micro-batch", _range(point.mean_micro_batch)))
    if point.logged is not None:
        rows.append(("#running-req printed", f"{_range(point.logged)} (one slot)"))
    if point.tok_s:
        lap = ""
        if point.in_flight is not None:
            lap = f", lap {1000.0 * point.in_flight.value / point.tok_s:.1f} ms"
        rows.append(("throughput", f"{point.tok_s:.1f} tok/s{lap}"))
    if point.queue is not None and point.lines:
        usage = f"; KV cache at most {point.usage:.0%} used" if point.usage else ""
        rows.append(("waiting", f"{point.queue:.1f} on average{usage}"))
    return [
        line for name, value in rows for line in _wrap(value, f"  {name:<22}", " " * 24)
    ]


def _range(value: Measured) -> str:
    if value.high - value.low < 0.05:
        return f"{value.value:.3g}"
    return f"{value.value:.3g} ({value.low:.3g} to {value.high:.3g})"


def _finding(finding: Finding) -> list[str]:
    lines = _wrap(finding.title, "  ")
    for words in finding.evidence:
        lines += _wrap(words, "  - ", "    ")
    for prediction in finding.predictions:
        lines += _wrap(_prediction(prediction), "  > ", "    ")
        lines += _wrap(f"model: {prediction.model}", "      ")
    for fix in finding.fixes:
        lines += _wrap(f"set {fix.set}", "  * ", "    ")
        lines += _wrap(fix.why, "      ")
    return lines


def _prediction(prediction: Prediction) -> str:
    # Outwards: a range must not look narrower than it is.
    step = 5 if prediction.low >= 100 else 1
    low = step * math.floor(prediction.low / step)
    high = step * math.ceil(prediction.high / step)
    to = f"{low} to {high}" if low != high else f"about {low}"
    return (
        f"predicted: {prediction.what}: {to} tok/s instead of {prediction.base:.4g} "
        f"({prediction.gain:.2f} times)"
    )


def _other(other: dict[str, Any]) -> str:
    return (
        f"{other['pipeline'] or 'unnamed'}: {other['verdict']}, "
        f"{other['decode_lines']} decode lines"
    )


def _input(found: dict[str, Any]) -> list[str]:
    if not found:
        return []
    words = [
        f"{found.get('lines', 0)} lines, {found.get('batch_lines', 0)} batch lines"
        + (f", pipeline {found['pipeline']}" if found.get("pipeline") else "")
    ]
    skipped = found.get("skipped") or {}
    if skipped:
        shown = ", ".join(f"{count} {reason}" for reason, count in skipped.items())
        words.append(f"skipped: {shown}")
    return words
