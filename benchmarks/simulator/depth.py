"""How many slots to fill in a ring with async depth: the table of docs/policies.md.

    python benchmarks/simulator/depth.py

Closed loops of one length; tokens per second over stock's in the same ring.
"""

from sglang_ppfix.sim import CpuTimes, Profile, Server, closed_loop, simulate
from sglang_ppfix.sim.curve import Affine

#: Decode of a stage, ms: constant part, and part per request.
SHAPES = {"steep": (2.0, 1.8), "between": (5.0, 0.6), "flat": (10.0, 0.0)}
DEPTHS = {4: (1, 2, 3, 4), 8: (2, 4, 6, 8)}


def tok_s(
    server: Server, shape: tuple[float, float], clients: int, policy: str
) -> float:
    """Throughput of one ring."""
    base, slope = (value / 1e3 for value in shape)
    stages = server.pp_size
    profile = Profile(
        "depth",
        (Affine(base, slope),) * stages,
        (Affine(base, 0.02e-3),) * stages,
        hop=0.3e-3,
        way_back=0.3e-3,
        cpu=CpuTimes(),
    )
    load = closed_loop(clients, 6 * clients, 32, 200, shape="fixed")
    return float(simulate(server, profile, load, policy).row()["tok_s"])


def main() -> None:
    """Print the table."""
    print(
        "| stages | stage time | depth | clients | P slots | P + 2 | all | the rule |"
    )
    print("| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for stages, depths in DEPTHS.items():
        for name, shape in SHAPES.items():
            for depth in depths:
                for clients in (2 * stages, 4 * stages):
                    print(_row(stages, name, shape, depth, clients))


def _row(
    stages: int, name: str, shape: tuple[float, float], depth: int, clients: int
) -> str:
    rows = 8 * stages
    stock = tok_s(Server(stages, depth, rows), shape, clients, "stock")
    filled = (stages, min(stages + 2, stages + depth), stages + depth, None)
    ratios = [
        tok_s(Server(stages, depth, rows, target_slots=n), shape, clients, "balanced")
        / stock
        for n in filled
    ]
    cells = " | ".join(f"{ratio:.2f}" for ratio in ratios)
    return f"| {stages} | {name} | {depth} | {clients} | {cells} |"


if __name__ == "__main__":
    main()
