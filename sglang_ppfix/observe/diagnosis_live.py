"""A running server's answers as a report."""

import asyncio
from collections.abc import Mapping, Sequence
from statistics import fmean
from urllib.parse import urlsplit

import aiohttp

from .diagnosis import conclude
from .diagnosis_config import Hints, build, given_points
from .diagnosis_context import Context, Facts
from .diagnosis_logs import diagnose_logs, use_given_rates
from .diagnosis_types import DiagnoseError, Measured, OperatingPoint, Report
from .live import Samples, decode_rate, first_state, grown, token_time_s, watch
from .log_inflight import Source
from .log_load import fill_slots
from .log_ranks import Divergence, compare_digests


def diagnose_live(
    url: str,
    seconds: float,
    files: Sequence[str],
    hints: Hints,
    api_key: str | None = None,
) -> Report:
    """Watch a server for some seconds and diagnose it.

    Args:
        url: base address, e.g. ``http://127.0.0.1:30000``.
        seconds: how long to watch.
        files: logs of the same server, read beside it; may be empty.
        hints: what the user knows.
        api_key: the server's ``--api-key``, where it has one.

    Raises:
        DiagnoseError: the server does not answer, or is no SGLang server.
        LogInputError: a log cannot be read.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise DiagnoseError(f"--url {url!r}: must start with http:// or https://")
    try:
        samples = asyncio.run(watch(url.rstrip("/"), seconds, api_key))
    except (aiohttp.ClientError, OSError, asyncio.TimeoutError, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise DiagnoseError(
            f"--url {url}: no answer from a server: {reason}"
        ) from error
    return report(samples, url, files, hints)


def report(samples: Samples, url: str, files: Sequence[str], hints: Hints) -> Report:
    """Diagnose what a server answered."""
    live = configuration(samples)
    context = live_context(samples, hints, live)
    if files:
        point = context.main
        number = point.in_flight.value if point and point.in_flight else None
        found = diagnose_logs(files, hints, live, clients=number)
    else:
        remarks = use_given_rates(context)
        found = conclude(context)
        found.notes += remarks
    found.input["url"] = url
    found.input["watched_s"] = round(samples.seconds, 1)
    found.input["samples"] = len(samples.loads)
    if not samples.after:
        found.notes.append(
            "the server has no /metrics: start it with --enable-metrics, so that the "
            "number in flight can be measured"
        )
    found.notes += [use.words() for use in samples.gpus]
    if samples.no_gpu:
        found.notes.append(samples.no_gpu)
    return found


def configuration(samples: Samples) -> dict[str, object]:
    """Server arguments in force, by SGLang's names."""
    info = samples.info
    live: dict[str, object] = {**info, **first_state(info)}
    load = samples.loads[-1] if samples.loads else {}
    for name in ("max_running_requests", "max_total_num_tokens"):
        if load.get(name):
            live[name] = load[name]
    rows = load.get("max_running_requests")
    live.setdefault("effective_max_running_requests_per_dp", rows)
    live["version"] = info.get("version")
    return live


def live_context(samples: Samples, hints: Hints, live: Mapping[str, object]) -> Context:
    """Context of the rules out of a server's answers."""
    config = build(hints, None, live, (), False)
    facts = Facts(
        stage_busy=_stage_busy(samples),
        busy_source="the plugin's stage clock" if samples.states else "fwd_occupancy",
        divergences=_divergences(samples),
        retractions=int(grown(samples, "sglang:num_retracted_requests_total", "0")),
        plugin=bool(samples.states),
        has_log=True,
        decode_lines=len(samples.loads),
        new_seqs_per_prefill=0.0,
        tagged=True,
    )
    point = _plugin_point(samples) or _stock_point(samples, hints, config.loop_size)
    points = [point] if point is not None else []
    return Context(config, points, facts, given_points(config, hints))


def _plugin_point(samples: Samples) -> OperatingPoint | None:
    """The load as the plugin counts it: every slot, at every sample."""
    states = [s for s in samples.states if s.get("occupancy")]
    busy = [s["occupancy"] for s in states if any(s["occupancy"])]
    if len(busy) < 2:
        return None
    first, last = states[0], states[-1]
    seconds = last.get("clock_s", 0.0) - first.get("clock_s", 0.0)
    tokens = last.get("decode_tokens", 0) - first.get("decode_tokens", 0)
    numbers = [float(sum(slots)) for slots in busy]
    point = _common(samples)
    point.in_flight = Measured(fmean(numbers), min(numbers), max(numbers))
    point.source, point.confidence = Source.PLUGIN.value, Source.PLUGIN.confidence
    point.filled = Measured.exact(fmean(sum(n > 0 for n in s) for s in busy))
    point.largest = Measured.exact(fmean(max(s) for s in busy))
    point.tok_s = tokens / seconds if seconds > 0 and tokens > 0 else point.tok_s
    kinds = {tuple(sorted((n for n in s if n), reverse=True)) for s in busy}
    if len(kinds) == 1:
        point.occupancy = kinds.pop()
    return point


def _stock_point(
    samples: Samples, hints: Hints, loop_size: int | None
) -> OperatingPoint | None:
    """The load out of rates: stock's own counts are of one slot."""
    sizes: dict[int, int] = {}
    for load in samples.loads:
        size = load.get("num_running_reqs")
        if isinstance(size, int) and size > 0:
            sizes[size] = sizes.get(size, 0) + 1
    if not sizes:
        return None
    point = _common(samples)
    total = sum(sizes.values())
    mean = sum(size * times for size, times in sizes.items()) / total
    point.logged = Measured(mean, min(sizes), max(sizes))
    # A reading is of the slot that had its turn: a sample of the filled ones.
    error = 0.15 * mean if len(sizes) > 1 else 0.02 * mean
    point.mean_micro_batch = Measured(mean, mean - error, mean + error)
    per_token = token_time_s(samples)
    if hints.clients is not None:
        number = max(hints.clients - (point.queue or 0.0), 1.0)
        point.in_flight = Measured.exact(number)
        source = Source.CLIENTS
    elif per_token is not None and point.tok_s:
        number = max(point.tok_s * per_token, 1.0)
        point.in_flight = Measured(number, 0.93 * number, 1.07 * number)
        source = Source.LIVE
    else:
        return point
    point.source, point.confidence = source.value, source.confidence
    fill_slots(point, sizes, loop_size)
    return point


def _common(samples: Samples) -> OperatingPoint:
    loads = samples.loads
    queue = [float(load.get("num_waiting_reqs") or 0) for load in loads]
    return OperatingPoint(
        tok_s=decode_rate(samples),
        queue=fmean(queue) if queue else 0.0,
        queued_share=fmean(q > 0 for q in queue) if queue else 0.0,
        usage=max((float(load.get("token_usage") or 0) for load in loads), default=0.0),
        seconds=samples.seconds,
        lines=len(loads),
    )


def _stage_busy(samples: Samples) -> dict[int, float]:
    """PP rank -> busy share, out of the plugin's clock or SGLang's own gauge."""
    if len(samples.states) >= 2:
        first, last = (
            {r.get("pp_rank"): r for r in s.get("ranks") or [] if isinstance(r, dict)}
            for s in (samples.states[0], samples.states[-1])
        )
        shares = {}
        for rank, now in last.items():
            spent = [
                now.get(key, 0.0) - first.get(rank, {}).get(key, 0.0)
                for key in ("busy_s", "waiting_s", "nothing_to_do_s")
            ]
            if isinstance(rank, int) and sum(spent) > 0:
                shares[rank] = spent[0] / sum(spent)
        if shares:
            return shares
    gauge = samples.after.get("sglang:fwd_occupancy", {})
    found = {}
    for labels, value in gauge.items():
        rank_text = dict(labels).get("pp_rank", "")
        if rank_text.isdigit() and value == value and value > 0:
            found[int(rank_text)] = value / 100.0
    return found


def _divergences(samples: Samples) -> list[Divergence]:
    """Ranks whose admissions differ from rank 0's, out of the plugin's digests."""
    return compare_digests(
        {
            (int(rank.get("pp_rank", 0)), int(rank.get("admissions", 0))): str(
                rank.get("digest")
            )
            for state in samples.states
            for rank in state.get("ranks") or []
            if isinstance(rank, dict)
        }
    )
