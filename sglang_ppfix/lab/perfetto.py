"""The devices' forwards as a Chrome trace, for Perfetto (ui.perfetto.dev)."""

from collections.abc import Iterator
from typing import Any

from .experiment import Outcome, Run

_CPU_THREAD = 1000
"""Thread ids from here on hold the launches of the stages' CPUs."""


def chrome_trace(outcome: Outcome) -> dict[str, Any]:
    """Trace events of all runs: a process per server, a thread per stage.

    Every server's clock starts at its first load, so that stock and plugin can be
    compared at the same place. Times are microseconds, as the format wants.
    """
    events: list[dict[str, Any]] = []
    servers: dict[tuple[str, int], list[Run]] = {}
    for run in outcome.runs:
        servers.setdefault((run.arm, run.pair), []).append(run)
    for process, ((arm, pair), runs) in enumerate(servers.items(), start=1):
        events += _names(process, f"{arm} {pair + 1}", len(runs[0].traces))
        zero = runs[0].begin
        for run in runs:
            events += _run_events(process, run, zero)
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _names(process: int, name: str, stages: int) -> Iterator[dict[str, Any]]:
    def label(kind: str, thread: int, text: str) -> dict[str, Any]:
        return {
            "ph": "M",
            "name": kind,
            "pid": process,
            "tid": thread,
            "args": {"name": text},
        }

    yield label("process_name", 0, name)
    yield label("thread_name", 0, "load")
    for stage in range(stages):
        yield label("thread_name", stage + 1, f"stage {stage} device")
        yield label("thread_name", _CPU_THREAD + stage, f"stage {stage} launches")


def _run_events(process: int, run: Run, zero: float) -> Iterator[dict[str, Any]]:
    def micro(moment: float) -> float:
        return round((moment - zero) * 1e6, 1)

    yield {
        "ph": "X",
        "name": f"C={run.clients}: {run.measurement.tok_s:.1f} tok/s",
        "pid": process,
        "tid": 0,
        "ts": micro(run.begin),
        "dur": round((run.end - run.begin) * 1e6, 1),
    }
    for trace in run.traces:
        for forward in trace:
            arguments = {
                "slot": forward.slot,
                "requests": forward.requests,
                "tokens": forward.tokens,
                "rids": " ".join(forward.rids),
            }
            name = f"{forward.mode} slot {forward.slot}: {forward.requests}"
            yield {
                "ph": "X",
                "name": name,
                "cat": forward.mode,
                "pid": process,
                "tid": forward.rank + 1,
                "ts": micro(forward.start),
                "dur": round((forward.end - forward.start) * 1e6, 1),
                "args": arguments,
            }
            yield {
                "ph": "i",
                "s": "t",
                "name": name,
                "pid": process,
                "tid": _CPU_THREAD + forward.rank,
                "ts": micro(forward.launched),
            }
