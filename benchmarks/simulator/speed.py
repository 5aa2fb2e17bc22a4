"""How fast the simulator is: 8 policies x 20 loads x 10,000 requests.

python benchmarks/simulator/speed.py [--requests 10000] [--jobs 2] [--plain]
"""

import argparse
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from loads import loads, machines

from sglang_ppfix.sim import POLICIES, simulate

NAMES = list(POLICIES)[:8]


def _run(task: tuple[int, str, int, bool]) -> tuple[str, float, int]:
    number, policy, requests, plain = task
    server, profile = machines()["moe"]
    load = loads(server, profile, requests, seed=0)[number]
    begin = time.process_time()
    outcome = simulate(server, profile, load, policy, compiled=False if plain else None)
    return policy, time.process_time() - begin, outcome.turns


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--plain", action="store_true", help="without Numba")
    args = parser.parse_args()
    tasks = [
        (number, policy, args.requests, args.plain)
        for policy in NAMES
        for number in range(20)
    ]
    begin = time.perf_counter()
    seconds: Counter[str] = Counter()
    turns = 0
    with ProcessPoolExecutor(args.jobs) as pool:
        for policy, took, passed in pool.map(_run, tasks, chunksize=2):
            seconds[policy] += took  # type: ignore[assignment]
            turns += passed
    wall = time.perf_counter() - begin
    print(
        f"{len(tasks)} runs of {args.requests} requests, {turns / 1e6:.1f} million "
        f"turns: {wall:.1f} s with {args.jobs} processes"
    )
    for policy in NAMES:
        print(f"  {policy:9} {seconds[policy]:6.1f} s of CPU for 20 loads")


if __name__ == "__main__":
    main()
