"""Runs as a trace that ui.perfetto.dev and chrome://tracing open."""

from collections.abc import Sequence
from typing import Any

from .outcome import Outcome


def chrome_trace(runs: Sequence[Outcome]) -> dict[str, Any]:
    """One process per run and one thread per stage, in the trace event format.

    Args:
        runs: recorded ones (``record=True``).
    """
    events: list[dict[str, Any]] = []
    for process, run in enumerate(runs):
        name = f"{run.policy}, {run.load}"
        events.append(_named("process_name", process, 0, name))
        for stage in sorted({span.stage for span in run.spans or ()}):
            events.append(_named("thread_name", process, stage, f"stage {stage}"))
        events.extend(
            {
                "ph": "X",
                "pid": process,
                "tid": span.stage,
                "ts": round(span.start * 1e6, 3),
                "dur": round((span.end - span.start) * 1e6, 3),
                "name": f"{span.kind} of slot {span.slot}",
                "args": {"slot": span.slot, "requests": span.size},
            }
            for span in run.spans or ()
        )
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {
        "ph": "M",
        "pid": process,
        "tid": thread,
        "name": what,
        "args": {"name": name},
    }
