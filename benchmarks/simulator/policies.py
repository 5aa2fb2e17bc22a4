"""All policies on all loads, on two machines: the table of docs/policies.md.

python benchmarks/simulator/policies.py [--requests 1500] [--seeds 2] [--json FILE]
"""

import argparse
import json
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from loads import loads, machines

from sglang_ppfix.sim import POLICIES, simulate

Key = tuple[str, int, str]


def _run(task: tuple[str, int, str, int, int]) -> dict[str, Any]:
    machine, number, policy, requests, seed = task
    server, profile = machines()[machine]
    load = loads(server, profile, requests, seed)[number]
    outcome = simulate(server, profile, load, policy)
    return {
        "machine": machine,
        "load": load.name,
        "number": number,
        "open": load.clients is None,
        "policy": policy,
        "seed": seed,
        "latency_s": float(np.mean(outcome.latency)),
        **outcome.row(),
        "load_name": load.name,
    }


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--chunks", action="store_true", help="chunk sizes instead")
    args = parser.parse_args()
    if args.chunks:
        print(_chunks(args.requests))
        return
    tasks = [
        (machine, number, policy, args.requests, seed)
        for machine in machines()
        for number in range(20)
        for policy in POLICIES
        for seed in range(args.seeds)
    ]
    with ProcessPoolExecutor(args.jobs) as pool:
        rows = list(pool.map(_run, tasks, chunksize=4))
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    for machine in machines():
        print(_table(machine, [row for row in rows if row["machine"] == machine]))


def _table(machine: str, rows: list[dict[str, Any]]) -> str:
    """Markdown: tokens per second of closed loops and drains, else mean latency."""
    by_load: dict[int, dict[str, list[dict[str, Any]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in rows:
        by_load[row["number"]][row["policy"]].append(row)
    lines = [
        f"### {machines()[machine][1].name}",
        "",
        "| load | unit | "
        + " | ".join(POLICIES)
        + " | balanced to stock | to the best |",
        "| --- | --- |" + " ---: |" * len(POLICIES) + " ---: | --- |",
    ]
    for number in sorted(by_load):
        policies = by_load[number]
        first = policies["stock"][0]
        faster = not first["open"] or "drain" in first["load_name"]
        key, unit = ("tok_s", "tok/s") if faster else ("latency_s", "s")
        values = {p: float(np.mean([r[key] for r in policies[p]])) for p in POLICIES}
        scores = {p: v if faster else 1 / v for p, v in values.items()}
        best = max(scores, key=lambda policy: scores[policy])
        gap = scores["balanced"] / scores[best] - 1
        gain = 100 * (scores["balanced"] / scores["stock"] - 1)
        cells = [
            f"**{_number(values[p])}**" if p == best else _number(values[p])
            for p in POLICIES
        ]
        verdict = "best" if best == "balanced" else f"{100 * gap:.1f} % ({best})"
        lines.append(
            f"| {first['load_name']} | {unit} | {' | '.join(cells)} "
            f"| {gain:+.1f} % | {verdict} |"
        )
    return "\n".join([*lines, ""])


def _chunks(requests: int) -> str:
    """Markdown: prompts of 2,000 tokens, by clients and chunk size."""
    names = ("stock", "balanced", "gather", "td-pipe")
    lines = []
    for server, profile in machines().values():
        load = next(
            load
            for load in loads(server, profile, requests, 0)
            if load.name == "closed 32, prompts 2k"
        )
        lines += [
            f"| {profile.name}, clients | chunk | " + " | ".join(names) + " |",
            "| ---: | ---: |" + " ---: |" * len(names),
        ]
        for clients, chunk in product((32, 64), (8192, 2048, 1024, 512, 256, 128)):
            chunked = replace(server, chunked_prefill_size=chunk)
            some = replace(load, clients=clients)
            tok_s = [simulate(chunked, profile, some, name).tok_s for name in names]
            cells = [str(clients), str(chunk), *(f"{x:.1f}" for x in tok_s)]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:.1f}" if value < 1000 else f"{value:.0f}"


if __name__ == "__main__":
    main()
