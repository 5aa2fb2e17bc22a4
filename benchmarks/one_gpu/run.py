"""Run one case: start the server, measure the arms in turn, write JSON lines.

    python benchmarks/one_gpu/run.py --case steep-pp4 --seconds 480 --out OUT

Every record is written when it is known, so an ended run keeps what it had. Exit
status 0 also when time ran out; 1 when the server did not start or a window failed.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from cases import CASES, Case
from measure import OutOfTime, Session
from models import SHAPES
from server import Placement, StartError, place, plugin_lines, server_for

from sglang_ppfix.lab.errors import LabError
from sglang_ppfix.lab.machine import describe_machine
from sglang_ppfix.remote import RemoteServer

#: Left for stopping the server and bringing the files home.
RESERVE_S = 15.0
ROUNDS = 3


def main() -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--case", required=True, choices=CASES)
    add("--seconds", type=float, default=480.0, help="time in all, start included")
    add("--out", type=Path, default=Path(os.environ.get("OUT", "out/one_gpu")))
    add("--device", choices=("cuda", "cpu"), default="cuda")
    add("--no-traffic", action="store_true", help="bursts only")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    case = CASES[args.case]
    if (case.shape is None) != (args.device == "cpu"):
        parser.error(f"--case {case.name} does not run on --device {args.device}")
    deadline = time.monotonic() + args.seconds - RESERVE_S
    say(f"{case.name}: {args.seconds:.0f} s")
    folder = Path(tempfile.mkdtemp(prefix=f"ppfix-{case.name}-"))
    log = folder / "server.log"
    try:
        placement = place(args.device, case.pp)
        say(placement.says(case.pp))
        begin = time.monotonic()
        with server_for(case, placement, folder) as server:
            say(f"ready after {time.monotonic() - begin:.0f} s")
            for line in plugin_lines(log.read_text(errors="replace")):
                say(f"  {line}")
            started = time.monotonic() - begin
            path = args.out / f"{case.name}.jsonl"
            facts = about(case, placement, started)
            asyncio.run(
                measure(case, facts, server.url, path, deadline, args.no_traffic)
            )
    except (StartError, LabError, RuntimeError, OSError) as error:
        say(f"failed: {error}")
        return 1
    finally:
        if log.exists():
            keep_log(log, args.out / f"{case.name}.server.log")
    return 0


async def measure(
    case: Case,
    facts: dict[str, object],
    url: str,
    path: Path,
    deadline: float,
    bursts_only: bool,
) -> None:
    """All of a case, in the order of worth."""
    with path.open("w") as out:
        async with RemoteServer(url) as server:
            session = Session(server, case, out, deadline, say)
            session.write("case", **facts)
            try:
                await session.warm_up()
                say("warm")
                for round_ in range(ROUNDS):
                    await session.bursts(round_)
                    say(f"round {round_}: {session.time_left():.0f} s left")
                    if round_ == 0:
                        await session.greedy_outputs()
                await session.observed()
                if not bursts_only:
                    for round_ in range(ROUNDS):
                        await session.traffic(round_)
                        say(f"traffic {round_}: {session.time_left():.0f} s left")
                for round_ in range(ROUNDS, 12):
                    await session.bursts(round_)
                    say(f"round {round_}: {session.time_left():.0f} s left")
            except OutOfTime:
                say("time is over")
            finally:
                session.write("end", windows=session.windows)
                for line in session.summary():
                    say(line)


def about(case: Case, placement: Placement, started: float) -> dict[str, object]:
    """What the figures of a case stand on."""
    shape = None if case.shape is None else SHAPES[case.shape]
    return {
        "placement": placement.says(case.pp),
        "one_gpu": placement.one_gpu,
        "gpus": placement.gpus,
        "machine": describe_machine(),
        "commit": os.environ.get("PPFIX_COMMIT", ""),
        "shape": None if shape is None else {"says": shape.says, **shape.short()},
        "pp": case.pp,
        "rows": case.rows,
        "stock_cap": case.stock_cap,
        "output_tokens": case.output_tokens,
        "started_s": round(started, 1),
    }


def keep_log(log: Path, path: Path) -> None:
    """The server's log without its longest lines, ends only if it is large."""
    lines = [line[:400] for line in log.read_text(errors="replace").splitlines()]
    if len(lines) > 6000:
        lines = [*lines[:3000], f"... {len(lines) - 6000} lines ...", *lines[-3000:]]
    path.write_text("\n".join(lines) + "\n")


def say(text: str) -> None:
    """Progress, with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
