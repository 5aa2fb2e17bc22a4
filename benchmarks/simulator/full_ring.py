"""When no start lands well: wait, or overfill a slot? A table of docs/policies.md.

python benchmarks/simulator/full_ring.py

SGLang starts nothing in a slot that holds its cap, so in a full ring prompts in chunks
can be without a start that lands well. Few rows, closed loop of as many clients, or of
three for every four rows.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from loads import machines

from sglang_ppfix.policy import TurnPlan, may_start
from sglang_ppfix.sim import Profile, Server, closed_loop, filling
from sglang_ppfix.sim.engine import Engine
from sglang_ppfix.sim.scheduler import Scheduler
from sglang_ppfix.sim.slot import Slot

RULE = may_start
SEEDS = (0, 1)


def always_wait(
    occupancy: Sequence[int], plan: TurnPlan, slot: int, starts: list[int], passed: int
) -> bool:
    """Only where there is room."""
    return slot in starts


def never_wait(
    occupancy: Sequence[int], plan: TurnPlan, slot: int, starts: list[int], passed: int
) -> bool:
    """As if every row were worth a slot that holds one or more too many."""
    return RULE(occupancy, plan._replace(live=0), slot, starts, passed)


class FullSlotsStart(filling.Balanced):
    """SGLang would start a prompt in a full slot if it lands elsewhere."""

    def _room(self, slot: Slot, held: int = 0) -> int:
        if self.waiting and self._more(self.waiting[0].to_prefill, 0):
            return self.memory.rows + held
        return super()._room(slot, held)


VARIANTS = {
    "always wait": (always_wait, filling.Balanced),
    "never wait": (never_wait, filling.Balanced),
    "the rule": (RULE, filling.Balanced),
    "if full slots could start": (always_wait, FullSlotsStart),
}


def tok_s(
    server: Server, profile: Profile, make: type[Scheduler], clients: int
) -> float:
    """Mean tokens per second over the seeds."""
    found = []
    for seed in SEEDS:
        load = closed_loop(clients, 300, 1750, 200, seed=seed)
        found.append(Engine(server, profile, load, make(server)).run().tok_s)
    return float(np.mean(found))


def main() -> None:
    """Entry point."""
    (moe, steep), (dense, flat) = machines().values()
    print("| stages | rows | clients | " + " | ".join(VARIANTS) + " |")
    print("| --- | ---: | ---: |" + " ---: |" * len(VARIANTS))
    for server, profile in ((moe, steep), (dense, flat), (_two(dense), _two(flat))):
        stages = server.pp_size
        few = (stages, 2 * stages, 4 * stages)
        cases = [(rows, rows) for rows in (*few, 64)]
        cases += [(rows, 3 * rows // 4) for rows in (*few[1:], 64)]
        for rows, clients in cases:
            some = replace(server, max_running_requests=rows, chunked_prefill_size=1024)
            stock = tok_s(some, profile, Scheduler, clients)
            cells = []
            for rule, make in VARIANTS.values():
                filling.may_start = rule
                gain = 100 * (tok_s(some, profile, make, clients) / stock - 1)
                cells.append(f"{gain:+.0f} %")
            kind = "MoE" if profile is steep else "dense"
            row = f"| {kind}, PP{stages} | {rows} | {clients} | {' | '.join(cells)} |"
            print(row, flush=True)


def _two(machine: Server | Profile) -> Server | Profile:
    """The first two stages of a machine."""
    if isinstance(machine, Server):
        return replace(machine, pp_size=2)
    return replace(machine, decode=machine.decode[:2], prefill=machine.prefill[:2])


if __name__ == "__main__":
    main()
