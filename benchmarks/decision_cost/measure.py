"""Microseconds that the plugin's hooks add to one scheduling step, by kind of step.

    python benchmarks/decision_cost/measure.py --requests 64 --slots 8

Real: the hooks and their ``wrapt`` wrappers, the ring, the policy, SGLang's ``Req``,
``ScheduleBatch``, ``SamplingParams`` and ``PrefillAdder``. Emulated: the scheduler
around them (``stage.py``), whose methods do next to nothing, so that a step with hooks
minus the same step without them is what the hooks cost. Left out: what is sent between
stages, the caches of a real process (a forward between two steps makes them cold), and,
without ``--log``, the admission lines.

CPU time of the thread; on a machine that other processes use, the lowest tenth says
what the code costs, and the median what it costs there.
"""

import argparse
import json
import logging
import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path

warnings.simplefilter("ignore", UserWarning)  # of SGLang, about a missing GPU

from stage import KINDS, OUTPUT, Stage  # noqa: E402


def main() -> None:
    """Measure and print a table; ``--json`` writes the samples too."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=300, help="samples of each kind")
    parser.add_argument("--steps", type=int, default=50, help="steps in a sample")
    parser.add_argument("--log", action="store_true", help="write the admission lines")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO if args.log else logging.WARNING)

    costs = {}
    for kind in KINDS:
        stage = Stage(args.requests, args.slots, kind, log=args.log)
        without = samples(stage.step_without_hooks, args.repeats, args.steps)
        base = statistics.quantiles(without, n=10)[0]
        with_hooks = samples(stage.step_with_hooks, args.repeats, args.steps)
        costs[kind] = [sample - base for sample in with_hooks]
    print(
        f"{args.requests} requests, {args.slots} slots, "
        f"{args.repeats} samples of {args.steps} steps; {cpu()}, "
        f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"
    )
    print(f"{'microseconds by the hooks':<34}{'p10':>8}{'median':>8}{'p90':>8}")
    low = {}
    for kind, found in costs.items():
        tenths = statistics.quantiles(found, n=10)
        low[kind] = tenths[0]
        row = "".join(f"{tenths[i]:8.1f}" for i in (0, 4, 8))
        print(f"{KINDS[kind]:<34}{row}")
    # Each request is admitted once, and its slot then decodes for all it holds.
    steps = OUTPUT * args.slots / args.requests
    mean = ((steps - 1) * low["full"] + low["admits one"]) / steps
    print(
        f"mean over requests of {OUTPUT} tokens, queue never empty: {mean:.1f} (of p10)"
    )
    if args.json:
        args.json.write_text(json.dumps(costs, indent=1))


def samples(step: Callable[[], None], repeats: int, steps: int) -> list[float]:
    """CPU microseconds per step, one mean a repeat; the first ones warm up."""
    found = []
    for _ in range(repeats + 10):
        begin = time.thread_time()
        for _ in range(steps):
            step()
        found.append((time.thread_time() - begin) / steps * 1e6)
    return found[10:]


def cpu() -> str:
    """Model of the processor (Linux)."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown processor"


if __name__ == "__main__":
    main()
