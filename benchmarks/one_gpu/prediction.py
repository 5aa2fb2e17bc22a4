"""What the simulator makes of the stage times that were measured."""

from typing import Any

from sglang_ppfix.sim import Profile, Server, burst, simulate
from sglang_ppfix.sim.curve import Affine
from sglang_ppfix.sim.profile import NO_CPU

SEEDS = 5


def predictions(summary: dict[str, Any]) -> dict[int, float]:
    """Output tokens a second of bursts under ``balanced``, by number of clients.

    Stages on one card slow each other down, so every burst is simulated with the stage
    times that were measured in it; one that waits for rows, with those of full rows.
    The hop is the one that a single request shows, with all CPU time in it, so the
    simulator's own CPU times are off. ``stock`` is left out: how a burst falls into
    its slots hangs on the CPU time between two turns.
    """
    entries = {e["clients"]: e for e in summary["stages"] if e["arm"] == "balanced"}
    server = Server(summary["pp"], max_running_requests=summary["rows"])
    result = {}
    for load in summary["loads"]:
        clients = load["clients"]
        entry = entries.get(min(clients, summary["rows"]))
        if load["load"] != "burst" or entry is None or entry["hop_ms"] is None:
            continue
        speeds = [
            simulate(
                server,
                _profile(entry),
                burst(
                    clients,
                    clients,
                    1.0,
                    8,
                    summary["output_tokens"],
                    shape="fixed",
                    seed=seed,
                ),
                "balanced",
            ).tok_s
            for seed in range(SEEDS)
        ]
        result[clients] = round(sum(speeds) / SEEDS, 1)
    return result


def _profile(entry: dict[str, Any]) -> Profile:
    stages = tuple(Affine(ms / 1e3) for ms in entry["decode_ms"])
    hop = entry["hop_ms"] / 1e3
    return Profile("measured", stages, stages, hop=hop, way_back=hop, cpu=NO_CPU)
