"""What a report says beside its findings: what is ruled out, what is missing."""

from .diagnosis_context import Context
from .diagnosis_limits import FULL_USAGE
from .diagnosis_types import Finding, OperatingPoint, Verdict


def ruled_out(context: Context, findings: list[Finding]) -> list[str]:
    """Causes that the evidence excludes."""
    point = context.main
    if point is None or not point.lines:
        return []
    found = {f.verdict for f in findings}
    words = []
    usage, retracted = point.usage, context.facts.retractions
    if usage is not None and usage < FULL_USAGE and not retracted:
        words.append(f"memory: KV cache at most {usage:.0%} used, no request retracted")
    if point.graph_share is not None and point.graph_share > 0.95:
        words.append(_graphs(context, point))
    if point.queued_share is not None and point.queued_share < 0.05:
        words.append("admission: no request waits, so no cap and no row holds any back")
    stretch = point.stretch
    if stretch is not None and stretch < 0.1 and Verdict.PREFILL_STRETCHED not in found:
        words.append(f"prefill: takes about {stretch:.0%} of the lap time")
    if len(context.facts.pp_ranks) > 1 and not context.facts.divergences:
        words.append(
            f"divergence: PP{context.facts.pp_ranks[0]} to "
            f"PP{context.facts.pp_ranks[-1]} printed the same batches in the same order"
        )
    return words


def _graphs(context: Context, point: OperatingPoint) -> str:
    largest = point.logged.high if point.logged is not None else 0
    size = context.config.graph_max_bs
    up_to = f", captured up to {size}" if size else ""
    return f"graphs: micro-batches up to {largest:.0f} ran as graphs{up_to}"


def missing(context: Context) -> list[str]:
    """What would be needed to say more, most useful first."""
    config, facts, point = context.config, context.facts, context.main
    if facts.two_servers:
        return [
            (
                "one server per input: the KV tokens grow by more than was generated, "
                "so two servers seem to write into one log"
            )
        ]
    if config.disaggregation == "prefill":
        return ["a log of the decode server: a PD prefill server runs no decode slots"]
    words = []
    if config.pp_size is None:
        words.append("the number of stages: --pp-size")
    if facts.has_log and facts.decode_lines < 3:
        every = config.decode_log_interval
        words.append(
            f"decode lines: {facts.decode_lines} found, one is printed every {every} "
            "micro-batches"
        )
    elif not facts.has_log and not any(
        p.tok_s or p.logged is not None for p in context.points
    ):
        words.append(
            "a load and what came out: a log with decode lines, or "
            "--point CLIENTS=TOK_S"
        )
    elif point is not None and point.in_flight is None:
        words.append(
            "how many requests were in flight: --clients N, a log from the start of "
            "the server, or SGLANG_PPFIX=observe (a log line counts one slot only)"
        )
    elif point is not None and point.filled is None:
        words.append(
            "how they lie in the slots: a log, or --max-running-requests and --cap"
        )
    if point is not None and (point.queued_share or 0.0) > 0.5:
        if config.max_running_requests is None:
            words.append("how many may run: --max-running-requests")
        if config.cap is None:
            words.append("the cap of a slot: --cap")
    return words


def notes(context: Context) -> list[str]:
    """Remarks that are no findings."""
    config, facts = context.config, context.facts
    words = []
    if config.speculative:
        words.append(
            f"speculative decoding ({config.speculative}): accept length is taken from "
            "the lines; predictions ignore its own costs"
        )
    if _chunk_hang(context):
        words.append(
            "a cap of 1 with chunked prefill hangs on 0.5.8 to 0.5.10 when a prompt is "
            "longer than the chunk (issue 23006, fixed in 0.5.11)"
        )
    depth = config.async_depth or 0
    if depth > 1:
        words.append(
            f"async depth {depth}: wrong output was reported above 1 (issue 15527)"
        )
    if config.max_running_requests is not None and config.loop_size is not None:
        rows, loop = config.max_running_requests, config.loop_size
        if rows < loop:
            words.append(f"max_running_requests {rows} is below the {loop} slots")
    if facts.has_log and not facts.tagged and (config.pp_size or 1) > 1:
        words.append(
            "lines carry no PP tag (custom logging): lines of several ranks were taken "
            "apart by their content, and ranks could not be compared"
        )
    return words


def _chunk_hang(context: Context) -> bool:
    config = context.config
    if config.cap != 1 or not config.chunked_prefill_size:
        return False
    if config.chunked_prefill_size < 0:
        return False
    return config.release is None or config.release.startswith(
        ("0.5.8", "0.5.9", "0.5.10")
    )
