"""What observing costs: policy ``observe`` and ``stock`` in turn in a lab server.

    python benchmarks/observe/overhead.py --json out/observe.json

Both decide as SGLang does; ``observe`` also times stages, counts laps and deferrals,
and logs. With stages of 2 ms the schedulers' CPU bounds the lap, and its cost shows
most.
"""

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

from sglang_ppfix.ab.compare import Comparison
from sglang_ppfix.ab.run import ABPlan, run_ab
from sglang_ppfix.lab.config import LabConfig
from sglang_ppfix.lab.experiment import warm_up
from sglang_ppfix.lab.profile_file import stage_profile
from sglang_ppfix.lab.server import LabServer
from sglang_ppfix.remote import RemoteServer

#: Stage time, output tokens of a burst.
CASES = {"20+10b": 24, "2": 250}
CLIENTS = 16


def compare(stage_ms: str, tokens: int, pairs: int) -> Comparison:
    """Bursts under both policies on a server of its own."""
    plan = ABPlan(("stock", "observe"), pairs, CLIENTS, output_tokens=tokens)

    async def run(url: str) -> Comparison:
        async with RemoteServer(url) as server:
            return await run_ab(server, plan, print)

    config = LabConfig(stage_profile(stage_ms, 4), env={"SGLANG_PPFIX": "1"})
    with LabServer(config) as server:
        warm_up(server)
        return asyncio.run(run(server.url))


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=12, help="default 12")
    parser.add_argument("--json", type=Path, help="file to write")
    args = parser.parse_args()
    found: dict[str, Any] = {}
    for stage_ms, tokens in CASES.items():
        comparison = compare(stage_ms, tokens, args.pairs)
        print(f"t(b) = {stage_ms} ms, {CLIENTS} clients: {comparison.verdict()}")
        found[stage_ms] = comparison.to_json()
        if args.json:
            args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
