"""Policy ``auto`` against stock and balanced, in turn inside one lab server.

    python benchmarks/auto/measure.py flat out/flat.json
    python benchmarks/auto/measure.py steep out/steep.json --clients 1,4,16 --rounds 5

For each number of clients: bursts under ``auto`` until it has stayed with one number of
slots for a while, then rounds of one burst per policy, the order turned round by round.
The file is written anew after every number of clients.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from sglang_ppfix.hooks.change import from_words
from sglang_ppfix.lab.config import LabConfig
from sglang_ppfix.lab.experiment import run_on, warm_up
from sglang_ppfix.lab.load import Lengths, plan_load
from sglang_ppfix.lab.profile_file import profile_from_json
from sglang_ppfix.lab.server import LabServer
from sglang_ppfix.lab.stage_time import StageProfile

STAGES = 4
ROWS = 64
POLICIES = ("stock", "balanced", "auto")
#: Laps without a change after which ``auto`` is taken to have chosen, and laps that it
#: gets in any case.
SETTLED_LAPS = 220
LEAST_LAPS = 600


def kimi() -> list[list[float]]:
    """Distinct experts of 384 that b requests of top-8 touch, at 0.2 ms each, over 8 ms
    (docs/law.md: why stage time grows with the micro-batch)."""
    return [[b, 8 + 0.2 * 384 * (1 - (1 - 8 / 384) ** b)] for b in range(0, ROWS + 1)]


PROFILES: dict[str, Any] = {
    "steep": "20+10b",
    "flat": "40",
    "kimi": kimi(),
    "host": "2",
}


def profile(name: str) -> StageProfile:
    """One of :data:`PROFILES` for every stage."""
    content = {"name": name, "stages": [{"decode": PROFILES[name]}]}
    return profile_from_json(content, STAGES, name)


def measure(name: str, path: Path, args: argparse.Namespace) -> None:
    """Run all numbers of clients on one server."""
    config = LabConfig(
        profile(name),
        max_running_requests=ROWS,
        kv_tokens=60_000,
        env={"SGLANG_PPFIX": "1", "SGLANG_PPFIX_POLICY": "auto"},
    )
    document: dict[str, Any] = {
        "schema_version": 1,
        "profile": name,
        "stages": STAGES,
        "max_running_requests": ROWS,
        "rows": [],
    }
    with LabServer(config, path.with_suffix(".server")) as server:
        warm_up(server)
        for clients in args.clients:
            row = _row(Bench(server, clients, args.burst_s), args)
            document["rows"].append(row)
            path.write_text(json.dumps(document, indent=1) + "\n")
            print(_line(row), flush=True)


def put_in_force(server: LabServer, policy: str) -> None:
    """Switch to a policy, the number of slots its own choice."""
    codes = from_words({"policy": policy, "slots": "auto"})
    answer = server.post("/set_internal_state", {"server_args": codes})
    if answer != [True]:
        raise RuntimeError(f"the server refused {codes}: {answer}")


def state_of(server: LabServer) -> dict[str, Any]:
    """The plugin's."""
    states = server.get("/server_info")["internal_states"]
    return dict(states[0]["ppfix"])


class Bench:
    """Bursts of one size on one server."""

    def __init__(self, server: LabServer, clients: int, burst_s: float) -> None:
        self.server = server
        self.clients = clients
        self.tokens = 24
        begin = time.monotonic()
        self.tok_s("balanced")
        lap_s = (time.monotonic() - begin) / self.tokens
        self.tokens = min(max(round(burst_s / lap_s), 24), 400)

    def tok_s(self, policy: str) -> float:
        """One burst under a policy; every token of it is checked."""
        put_in_force(self.server, policy)
        lengths = Lengths(12, 12), Lengths(self.tokens, self.tokens)
        load = plan_load("burst", self.clients, *lengths, seed=self.clients)
        measured = run_on(self.server, load).measurement
        if measured.errors or measured.wrong_tokens:
            raise RuntimeError(f"{measured.errors} {measured.wrong_tokens}")
        return measured.tok_s

    def state(self) -> dict[str, Any]:
        """The plugin's."""
        return state_of(self.server)

    def settle(self, longest_s: float) -> Iterator[int]:
        """Bursts under ``auto``; gives the target slots after each of them."""
        begin = time.monotonic()
        before = self.state()
        first = since = before["laps"]
        while time.monotonic() - begin < longest_s:
            self.tok_s("auto")
            now = self.state()
            if now["target_slots"] != before["target_slots"]:
                since = now["laps"]
            before = now
            yield now["target_slots"]
            if (
                now["laps"] - max(since, first + LEAST_LAPS - SETTLED_LAPS)
                > SETTLED_LAPS
            ):
                return


def _row(bench: Bench, args: argparse.Namespace) -> dict[str, Any]:
    settling = list(bench.settle(args.settle_s))
    begin = bench.state()
    measured: dict[str, list[float]] = {policy: [] for policy in POLICIES}
    slots = []
    for number in range(args.rounds):
        for policy in islice(cycle(POLICIES), number, number + len(POLICIES)):
            measured[policy].append(bench.tok_s(policy))
            if policy == "auto":
                slots.append(bench.state()["target_slots"])
    best = max(("stock", "balanced"), key=lambda p: fmean(measured[p]))
    return {
        "clients": bench.clients,
        "output_tokens": bench.tokens,
        "tok_s": measured,
        "settling": settling,
        "slots": slots,
        "laps": bench.state()["laps"] - begin["laps"],
        "balanced_to_stock": _ratio(measured["balanced"], measured["stock"]),
        "auto_to_stock": _ratio(measured["auto"], measured["stock"]),
        "best": best,
        "auto_to_best": _ratio(measured["auto"], measured[best]),
    }


def _ratio(over: list[float], under: list[float]) -> dict[str, float]:
    """Geometric mean of the rounds' ratios, and the spread of their logarithms."""
    logs = [math.log(a / b) for a, b in zip(over, under, strict=True)]
    spread = stdev(logs) if len(logs) > 1 else float("nan")
    return {"ratio": math.exp(fmean(logs)), "spread": spread}


def _line(row: dict[str, Any]) -> str:
    means = {policy: fmean(values) for policy, values in row["tok_s"].items()}
    shown = "  ".join(f"{policy} {mean:7.1f}" for policy, mean in means.items())
    to_stock, to_best = row["auto_to_stock"], row["auto_to_best"]
    return (
        f"C={row['clients']:3d}  {shown}  auto/stock {to_stock['ratio']:.3f} "
        f"auto/best {to_best['ratio']:.3f} (+-{to_best['spread']:.3f})  "
        f"slots {row['settling']} > {row['slots']}"
    )


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("profile", choices=PROFILES)
    parser.add_argument("json", type=Path, help="file to write")
    numbers = "1,2,4,8,16,32,64"
    parser.add_argument(
        "--clients",
        type=lambda text: [int(part) for part in text.split(",")],
        default=numbers,
        help=f"default {numbers}",
    )
    parser.add_argument("--rounds", type=int, default=4, help="default 4")
    parser.add_argument("--burst-s", type=float, default=8.0, help="default 8")
    parser.add_argument("--settle-s", type=float, default=100.0, help="default 100")
    args = parser.parse_args()
    measure(args.profile, args.json, args)


if __name__ == "__main__":
    main()
