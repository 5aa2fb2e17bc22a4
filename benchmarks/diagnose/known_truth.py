"""Logs of real SGLang servers whose truth is known, against ``sglang-ppfix diagnose``.

The lab runs real servers on the CPU with an emulated device. Its device traces say how
many requests every slot held; the log is all that diagnose sees. One process a server:

    python benchmarks/diagnose/known_truth.py --list
    python benchmarks/diagnose/known_truth.py --server stock --folder /tmp/truth
    python benchmarks/diagnose/known_truth.py --table --folder /tmp/truth

A run's log is kept as ``FOLDER/RUN.log.gz`` without paths, its truth as ``RUN.json``.
``--table`` diagnoses every kept log again, without a hint, and compares.
"""

import argparse
import gzip
import itertools
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sglang_ppfix.lab.client import run_load
from sglang_ppfix.lab.config import LabConfig
from sglang_ppfix.lab.load import Lengths, plan_load
from sglang_ppfix.lab.server import LabServer
from sglang_ppfix.lab.stage_time import (
    StageProfile,
    StageTime,
    default_prefill,
    parse_affine,
)
from sglang_ppfix.lab.trace import Forward, read_traces
from sglang_ppfix.observe.diagnosis_config import Hints
from sglang_ppfix.observe.diagnosis_logs import diagnose_logs
from sglang_ppfix.observe.log_config import parse_server_args

HERE = Path(__file__).resolve().parent
#: Lines that are kept of a server's log: what diagnose reads, no paths.
_KEPT = re.compile(
    r"(Decode|Prefill) batch|max_total_num_tokens=|HTTP/1\.1\" 200|\] ppfix |Retract"
)
#: A number in flight within this ratio of a level belongs to it.
_NEAR = 0.15
_STOCK = {"SGLANG_PPFIX": "0"}
_PLUGIN = {"SGLANG_PPFIX": "1", "SGLANG_PPFIX_SUMMARY_LAPS": "25"}


@dataclass(frozen=True)
class Run:
    """One load, and the verdict that is right for it."""

    name: str
    verdict: str
    clients: int
    output: str = "80"
    prompt: str = "8"
    requests: int | None = None
    arrival: str = "closed"
    timeout_s: float = 240.0


@dataclass(frozen=True)
class Server:
    """One server and its loads."""

    runs: tuple[Run, ...]
    env: dict[str, str] = field(default_factory=lambda: dict(_STOCK))
    pp: int = 4
    stage_ms: str = "10+5b"
    factors: tuple[float, ...] = ()
    prefill_ms: str | None = None
    max_running: int = 32
    depth: int = 0
    cap: int | None = None
    kv_tokens: int = 16384
    interval: int = 10


SERVERS: dict[str, Server] = {
    "stock": Server(
        (
            Run("stock-1", "client-limited", 1, "120"),
            Run("stock-2", "client-limited", 2, "100"),
            Run("greedy-4", "slots-not-filled", 4),
            Run("greedy-8", "slots-not-filled", 8),
            Run("greedy-12", "slots-not-filled", 12),
            Run("greedy-16", "slots-not-filled", 16),
            Run("greedy-24", "slots-not-filled", 24),
            Run("full-32", "healthy", 32),
            Run("greedy-16-lengths", "slots-not-filled", 16, "20-100", requests=48),
            Run("full-32-lengths", "healthy", 32, "40-80", requests=64),
            Run("greedy-8-burst", "slots-not-filled", 8, arrival="burst", requests=16),
        )
    ),
    "stock-ms": Server(
        (
            Run("ms-greedy-8", "slots-not-filled", 8),
            Run("ms-greedy-16", "slots-not-filled", 16, "20-100", requests=48),
            Run("ms-full-32", "healthy", 32),
        ),
        env={**_STOCK, "SGLANG_LOG_MS": "1"},
        interval=40,
        stage_ms="5+2b",
    ),
    "plugin": Server(
        (
            Run("even-2", "client-limited", 2, "100"),
            Run("even-4", "healthy", 4),
            Run("even-8", "healthy", 8),
            Run("even-9", "healthy", 9),
            Run("even-16", "healthy", 16),
            Run("even-32", "healthy", 32, "60"),
            Run("even-16-lengths", "healthy", 16, "20-100", requests=48),
        ),
        env=dict(_PLUGIN),
    ),
    "plugin-quiet": Server(
        (
            Run("quiet-even-8", "healthy", 8),
            Run("quiet-even-16", "healthy", 16, "40-100", requests=40),
        ),
        env={**_PLUGIN, "SGLANG_PPFIX_LOG": "off"},
    ),
    "capped": Server(
        (
            Run("capped-24", "cap-too-small", 24, "50", requests=72),
            Run("capped-12", "slots-not-filled", 12),
            Run("capped-16", "healthy", 16),
        ),
        cap=4,
    ),
    "rows": Server(
        (
            Run("rows-16", "memory-limited", 16, "50", requests=48),
            Run("rows-8", "healthy", 8),
        ),
        max_running=8,
    ),
    "starved": Server(
        # Long, of many lengths: the waves of the first burst are a small part of it.
        (Run("starved-24", "memory-limited", 24, "20-120", "20-30", requests=120),),
        kv_tokens=900,
    ),
    "starved-plugin": Server(
        (Run("starved-even-24", "memory-limited", 24, "60-90", "20-30", requests=48),),
        env=dict(_PLUGIN),
        kv_tokens=900,
    ),
    "uneven": Server(
        (
            Run("uneven-16", "uneven-layers", 16),
            Run("uneven-8", "uneven-layers", 8),
        ),
        env=dict(_PLUGIN),
        factors=(1.0, 1.0, 1.0, 1.8),
        stage_ms="20+5b",
    ),
    "prefill": Server(
        (
            Run("prefill-8", "prefill-stretched", 8, "10-30", "100-300", requests=64),
            Run("prefill-16", "prefill-stretched", 16, "10-30", "100-300", requests=96),
        ),
        env=dict(_PLUGIN),
        prefill_ms="10+1n",
    ),
    "diverged": Server(
        # The fault bites where a slot fills up to its cap.
        (Run("diverged", "ranks-diverged", 32, "40", requests=96, timeout_s=60.0),),
        env={**_STOCK, "PPFIX_TRUTH_WRONG_RANK": "2"},
    ),
    "pp2": Server(
        (
            Run("pp2-greedy-8", "slots-not-filled", 8),
            Run("pp2-full-16", "healthy", 16),
            Run("pp2-1", "client-limited", 1, "120"),
        ),
        pp=2,
        max_running=16,
    ),
    "deep": Server(
        (
            Run("deep-greedy-16", "slots-not-filled", 16),
            Run("deep-greedy-8", "slots-not-filled", 8),
        ),
        depth=4,
    ),
}


def profile(server: Server) -> StageProfile:
    """Stage times of a server."""
    curve = parse_affine(server.stage_ms, "stage_ms", "b")
    prefill = (
        parse_affine(server.prefill_ms, "prefill_ms", "n")
        if server.prefill_ms
        else default_prefill(curve)
    )
    factors = server.factors or (1.0,) * server.pp
    stages = tuple(StageTime(curve.scaled(f), prefill.scaled(f)) for f in factors)
    return StageProfile("known truth", stages)


def run_server(name: str, folder: Path) -> None:
    """Start a server, send its loads, keep logs and truths."""
    server = SERVERS[name]
    env = dict(server.env)
    if "PPFIX_TRUTH_WRONG_RANK" in env:
        # A start-up module on the path makes one rank admit less.
        paths = [str(HERE / "fault"), os.environ.get("PYTHONPATH", "")]
        env["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    config = LabConfig(
        profile=profile(server),
        max_running_requests=server.max_running,
        async_depth=server.depth,
        cap=server.cap,
        kv_tokens=server.kv_tokens,
        env=env,
        extra_args=("--decode-log-interval", str(server.interval)),
    )
    with tempfile.TemporaryDirectory() as place, LabServer(config, Path(place)) as lab:
        time.sleep(2.0)
        head = lab.log()
        for run in server.runs:
            keep_run(lab, server, run, head, folder)


def keep_run(lab: LabServer, server: Server, run: Run, head: str, folder: Path) -> None:
    """Send one load and keep what it left."""
    load = plan_load(
        run.arrival,  # type: ignore[arg-type]
        run.clients,
        Lengths.parse(run.prompt, "prompt"),
        Lengths.parse(run.output, "output"),
        seed=7,
        requests=run.requests or 2 * run.clients,
        rid_prefix=f"{run.name}-",
    )
    start = len(lab.log())
    begin = time.monotonic()
    run_load(lab.url, load, timeout_s=run.timeout_s)
    end = time.monotonic()
    time.sleep(1.0)
    forwards = read_traces(lab.trace_dir, begin, end)[0]
    kept = scrubbed(head, server) + scrubbed(lab.log()[start:], server)
    path = folder / f"{run.name}.log.gz"
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as out:
        out.write(("\n".join(kept) + "\n").encode())
    truth = {"verdict": run.verdict, "clients": run.clients, **occupancy(forwards)}
    (folder / f"{run.name}.json").write_text(json.dumps(truth, indent=1) + "\n")
    print(run.name, len(kept), "lines", truth, flush=True)
    if run.verdict != "ranks-diverged":
        lab.wait_idle()
    time.sleep(4.0)


def scrubbed(text: str, server: Server) -> list[str]:
    """Lines that diagnose reads, without paths; arguments reduced to what it knows."""
    kept = []
    for line in text.splitlines():
        if "server_args=" in line:
            known = parse_server_args(line)
            known.pop("model_path", None)
            kept.append(line[: line.index("server_args=")] + f"server_args={known!r}")
        elif _KEPT.search(line):
            kept.append(line)
    return kept


def occupancy(forwards: Sequence[Forward]) -> dict[str, Any]:
    """Mean requests in flight, filled slots, largest micro-batch, while loaded.

    Loaded is where the number in flight is near that around which most time lies.
    """
    spans = stays(forwards)
    marks = sorted({t for _, first, last in spans for t in (first, last)})
    rows = []
    for left, right in itertools.pairwise(marks):
        sizes: dict[int, int] = {}
        for slot, first, last in spans:
            if first <= left and last >= right:
                sizes[slot] = sizes.get(slot, 0) + 1
        if sizes:
            counts = sum(sizes.values()), len(sizes), max(sizes.values())
            rows.append((right - left, *counts))
    levels = [
        [row for row in rows if abs(row[1] - level) <= _NEAR * level]
        for level in {row[1] for row in rows}
    ]
    loaded = max(levels, key=lambda near: sum(row[0] for row in near), default=[])
    total = sum(row[0] for row in loaded)
    if not total:
        return {}
    means = [sum(row[0] * row[i] for row in loaded) / total for i in (1, 2, 3)]
    names = ("in_flight", "slots_filled", "largest")
    return dict(zip(names, (round(mean, 2) for mean in means), strict=True))


def stays(forwards: Sequence[Forward]) -> list[tuple[int, float, float]]:
    """Slot, start and end of every stay of a request in a slot.

    A request that is retracted waits in the queue, and is prefilled again later: that
    is another stay, and it is not in flight in between.
    """
    done: list[tuple[int, float, float]] = []
    now: dict[str, tuple[int, float, float]] = {}
    decoded: set[str] = set()
    for forward in forwards:
        for rid in forward.rids:
            if forward.mode == "prefill" and rid in decoded:
                done.append(now.pop(rid))
                decoded.discard(rid)
            elif forward.mode == "decode":
                decoded.add(rid)
            first = now[rid][1] if rid in now else forward.start
            now[rid] = forward.slot, first, forward.end
    return done + list(now.values())


def table(folder: Path) -> int:
    """Diagnose every kept log; returns the number of wrong ones."""
    wrong = 0
    print(
        f"{'run':<22}{'right verdict':<20}{'diagnosed':<20}"
        f"{'in flight':>16}{'slots filled':>16}{'largest':>14}"
    )
    for path in sorted(folder.glob("*.json")):
        truth = json.loads(path.read_text())
        found = diagnose_logs([str(path.with_suffix(".log.gz"))], Hints())
        point = found.main
        cells = []
        for name, value in (
            ("in_flight", point.in_flight if point else None),
            ("slots_filled", point.filled if point else None),
            ("largest", point.largest if point else None),
        ):
            seen = f"{value.value:.1f}" if value is not None else "-"
            cells.append(f"{truth.get(name, 0):.1f} / {seen}")
        right = found.verdict.value == truth["verdict"]
        close = (
            point is None
            or point.in_flight is None
            or (abs(point.in_flight.value - truth.get("in_flight", 0)) <= 1)
        )
        wrong += not (right and close)
        mark = "" if right and close else "  <-- wrong"
        print(
            f"{path.stem:<22}{truth['verdict']:<20}{found.verdict.value:<20}"
            f"{cells[0]:>16}{cells[1]:>16}{cells[2]:>14}{mark}"
        )
    return wrong


def main() -> None:
    """Run or compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", choices=SERVERS)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path("known_truth"))
    args = parser.parse_args()
    if args.list:
        print("\n".join(SERVERS))
    if args.server:
        args.folder.mkdir(parents=True, exist_ok=True)
        run_server(args.server, args.folder)
    if args.table:
        sys.exit(table(args.folder))


if __name__ == "__main__":
    main()
