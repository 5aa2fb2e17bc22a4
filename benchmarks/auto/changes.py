"""Policy ``auto`` under a load that changes, on one lab server.

    python benchmarks/auto/changes.py out/changes.json
    python benchmarks/auto/changes.py out/changes.json --laps 400 --flat 20

Closed loops of 4, 32, 8 and 64 clients on flat stages; then the stages become steep
under the last of them, and flat again. In each phase ``auto`` runs for some laps, and
then all policies in turn. Every token is checked.
"""

import argparse
import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from measure import POLICIES, ROWS, STAGES, put_in_force, state_of

from sglang_ppfix.lab.config import LabConfig
from sglang_ppfix.lab.experiment import run_on, warm_up
from sglang_ppfix.lab.load import Lengths, plan_load
from sglang_ppfix.lab.profile_file import stage_profile
from sglang_ppfix.lab.server import LabServer

OUTPUT = Lengths(20, 60)
CHANGE = re.compile(r"ppfix auto, target slots: (\d+) -> (\d+), (.*)")


class Phase(NamedTuple):
    """Stage times and clients."""

    stages: str
    clients: int


PHASES = (
    *(Phase("flat", clients) for clients in (4, 32, 8, 64)),
    *(Phase("steep", clients) for clients in (64, 16)),
    Phase("flat", 16),
)


class Bench:
    """One server through all phases."""

    def __init__(self, server: LabServer, times: dict[str, str], rounds: int) -> None:
        self.server = server
        self.times = times
        self.rounds = rounds
        self._sent = 0

    def phase(self, phase: Phase, laps: int) -> dict[str, Any]:
        """Run ``auto`` for so many laps, then all policies in turn."""
        profile = stage_profile(self.times[phase.stages], STAGES)
        self.server.set_stage_times(profile)
        put_in_force(self.server, "auto")
        read = len(self.server.log())
        begin = state_of(self.server)
        seen = [(0, begin["target_slots"])]
        while seen[-1][0] < laps:
            self.tok_s(phase.clients)
            now = state_of(self.server)
            seen.append((now["laps"] - begin["laps"], now["target_slots"]))
        changes = [
            (int(before), int(after), why)
            for before, after, why in CHANGE.findall(self.server.log()[read:])
            if before != after
        ]
        return {
            **phase._asdict(),
            "laps": seen[-1][0],
            "slots_by_laps": seen,
            "changes": changes,
            "followed_within": followed_within(seen),
            "tok_s": self.all_policies(phase.clients),
        }

    def all_policies(self, clients: int) -> dict[str, list[float]]:
        """Throughput of all policies, in turn."""
        found: dict[str, list[float]] = {policy: [] for policy in POLICIES}
        for number in range(self.rounds):
            order = POLICIES if number % 2 == 0 else POLICIES[::-1]
            for policy in order:
                put_in_force(self.server, policy)
                found[policy].append(self.tok_s(clients, number))
        return found

    def tok_s(self, clients: int, seed: int | None = None) -> float:
        """A closed loop of three requests a client; every token is checked."""
        self._sent += 1
        load = plan_load(
            "closed",
            clients,
            Lengths(12, 12),
            OUTPUT,
            seed=1000 + self._sent if seed is None else seed,
            requests=3 * clients,
        )
        measured = run_on(self.server, load).measurement
        if measured.errors or measured.wrong_tokens:
            raise RuntimeError(f"{measured.errors} {measured.wrong_tokens}")
        return measured.tok_s


def followed_within(seen: list[tuple[int, int]]) -> int:
    """Laps after which the number of slots was the one at the end, to a window."""
    last = 0
    for (_, before), (laps, after) in pairwise(seen):
        if before != after:
            last = laps
    return last


def lines(phases: list[dict[str, Any]]) -> Iterator[str]:
    """The table."""
    yield "| stages | clients | slots | within laps | changes, in laps | auto to best |"
    yield "| --- | ---: | --- | ---: | --- | ---: |"
    for phase in phases:
        means = {policy: fmean(each) for policy, each in phase["tok_s"].items()}
        ratio = means["auto"] / max(means["stock"], means["balanced"])
        first, last = phase["slots_by_laps"][0][1], phase["slots_by_laps"][-1][1]
        yield (
            f"| {phase['stages']} | {phase['clients']} | {first} > {last} "
            f"| {phase['followed_within']} | {len(phase['changes'])} in "
            f"{phase['laps']} | {ratio:.3f} |"
        )


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("json", type=Path, help="file to write")
    parser.add_argument("--laps", type=int, default=800, help="a phase; default 800")
    parser.add_argument("--rounds", type=int, default=2, help="default 2")
    parser.add_argument("--flat", default="40", help="ms; default 40")
    parser.add_argument("--steep", default="20+10b", help="ms; default 20+10b")
    args = parser.parse_args()
    times = {"flat": args.flat, "steep": args.steep}
    config = LabConfig(
        stage_profile(args.flat, STAGES),
        max_running_requests=ROWS,
        kv_tokens=60_000,
        env={"SGLANG_PPFIX": "1", "SGLANG_PPFIX_POLICY": "auto"},
    )
    document: dict[str, Any] = {"schema_version": 1, "times": times, "phases": []}
    with LabServer(config, args.json.with_suffix(".server")) as server:
        warm_up(server)
        bench = Bench(server, times, args.rounds)
        for phase in PHASES:
            document["phases"].append(bench.phase(phase, args.laps))
            args.json.write_text(json.dumps(document, indent=1) + "\n")
            print(list(lines(document["phases"]))[-1], flush=True)
    print("\n".join(lines(document["phases"])))


if __name__ == "__main__":
    main()
