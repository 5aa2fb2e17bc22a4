"""Verb ``simulate``: predict throughput with a simulator of SGLang's ring."""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from sglang_ppfix.sim import Server
from sglang_ppfix.sim.cases import (
    LoadOptions,
    Stages,
    Sweep,
    own_cases,
    preset_cases,
)
from sglang_ppfix.sim.policies import POLICIES
from sglang_ppfix.sim.presets import preset, preset_names
from sglang_ppfix.sim.sweep import Case, run_case, run_cases, without_bounds
from sglang_ppfix.sim.table import rows_table

from . import UserError

_DEFAULT_POLICIES = ("stock", "balanced")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the verb; several values separated by commas make a sweep."""
    what = parser.add_argument_group("what to simulate")
    what.add_argument(
        "--preset",
        metavar="NAME",
        help=f"a reported server: {', '.join(preset_names())}",
    )
    what.add_argument("--pp", type=int, default=8, metavar="P", help="stages")
    what.add_argument(
        "--stage-ms",
        default="2+2b",
        metavar="TIME",
        help='decode of a stage: "2+1.8b" (b requests), or a profile file',
    )
    what.add_argument(
        "--prefill-ms", metavar="TIME", help='prefill of a stage: "5+0.02n" (n tokens)'
    )
    what.add_argument("--hop-ms", type=float, metavar="MS", help="to the next stage")
    what.add_argument(
        "--head-ms", type=float, default=0.0, metavar="MS", help="extra on the last one"
    )
    what.add_argument(
        "--spread", type=float, default=0.0, metavar="PART", help="of stage times: 0.1"
    )
    what.add_argument("--max-running-requests", type=int, default=64, metavar="N")
    what.add_argument(
        "--chunked-prefill-size", type=int, default=8192, metavar="TOKENS"
    )
    what.add_argument("--kv-tokens", type=int, metavar="TOKENS", help="KV pool")
    sweep = parser.add_argument_group("policies, and values to sweep")
    sweep.add_argument(
        "--policies",
        type=_names,
        default=_DEFAULT_POLICIES,
        metavar="NAME,...",
        help=f"of {', '.join(POLICIES)}; all",
    )
    sweep.add_argument("--clients", type=_integers, default=(), metavar="C,C,...")
    sweep.add_argument("--async-depth", type=_integers, metavar="D,D,...")
    sweep.add_argument("--cap", type=_integers, metavar="N,N,...")
    sweep.add_argument(
        "--slots", type=_integers, metavar="S,S,...", help="target slots"
    )
    sweep.add_argument(
        "--layers",
        type=_splits,
        metavar="N,N,...[/N,N,...]",
        help="layers of each stage; several splits separated by /",
    )
    load = parser.add_argument_group("load")
    load.add_argument(
        "--load",
        metavar="KIND",
        help="closed (default), burst, poisson, or the file of a trace",
    )
    load.add_argument("--requests", type=int, metavar="N")
    load.add_argument("--rate", type=float, metavar="PER_S", help="of arrivals")
    load.add_argument("--prompt-tokens", type=float, metavar="N", help="mean")
    load.add_argument("--output-tokens", type=float, metavar="N", help="mean")
    load.add_argument("--lengths", metavar="SHAPE", help="fixed, uniform, long-tail")
    load.add_argument("--seed", type=int, metavar="N")
    out = parser.add_argument_group("results")
    out.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="all figures, to the file or else to standard output",
    )
    out.add_argument("--plot", type=Path, metavar="FILE", help="picture (PNG)")
    out.add_argument(
        "--gantt", type=Path, metavar="FILE", help="stages over time (PNG)"
    )
    out.add_argument("--trace", type=Path, metavar="FILE", help="Perfetto trace (JSON)")
    out.add_argument("--jobs", type=int, metavar="N", help="processes")
    out.add_argument(
        "--no-bounds", action="store_true", help="one run a row, no uncertainty"
    )


def run(args: argparse.Namespace) -> int:
    """Run the sweep and show what came out."""
    try:
        cases = _cases(args)
        if args.no_bounds:
            cases = [
                replace(case, readings=without_bounds(case.readings)) for case in cases
            ]
        with Progress(console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("simulating", total=len(cases))
            rows = run_cases(cases, args.jobs, lambda: progress.advance(task))
        for path in (args.plot, args.gantt, args.trace):
            if path is not None and not path.resolve().parent.is_dir():
                raise UserError(f"{path}: its folder does not exist")
        _pictures(args, cases, rows)
    except ValueError as error:
        raise UserError(str(error)) from None
    title = _title(args)
    document = json.dumps({"title": title, "rows": rows}, indent=1)
    if args.json == "-":
        print(document)
        return 0
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(rows_table(rows, title))
    if args.json:
        Path(args.json).write_text(document + "\n")
        console.print(f"figures: {args.json}")
    return 0


def _cases(args: argparse.Namespace) -> list[Case]:
    names = tuple(POLICIES) if args.policies == ("all",) else args.policies
    sweep = Sweep(
        names,
        args.clients,
        args.async_depth or (None,),
        args.cap or (None,),
        args.slots or (None,),
        args.layers or (None,),
    )
    given = {
        "kind": args.load,
        "requests": args.requests,
        "prompt": args.prompt_tokens,
        "output": args.output_tokens,
        "shape": args.lengths,
        "rate": args.rate,
        "seed": args.seed,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if args.preset is not None:
        options = LoadOptions(**given) if given else None
        return preset_cases(preset(args.preset), sweep, options)
    server = Server(
        args.pp,
        max_running_requests=args.max_running_requests,
        chunked_prefill_size=args.chunked_prefill_size or None,
        kv_tokens=args.kv_tokens,
    )
    stages = Stages(
        args.stage_ms, args.prefill_ms, args.hop_ms, args.head_ms, args.spread
    )
    sweep = replace(sweep, clients=sweep.clients or (8, 16, 32))
    return own_cases(server, stages, sweep, LoadOptions(**given))


def _pictures(
    args: argparse.Namespace, cases: list[Case], rows: list[dict[str, object]]
) -> None:
    if args.plot or args.gantt:
        from sglang_ppfix.sim import plot
    if args.plot:
        plot.curves(rows, args.plot, _title(args))
    if args.gantt or args.trace:
        chosen = cases[-len({case.policy for case in cases}) :]
        runs = [run_case(case, record=True) for case in chosen]
        if args.gantt:
            plot.gantt(runs, args.gantt, _title(args))
        if args.trace:
            from sglang_ppfix.sim.perfetto import chrome_trace

            args.trace.write_text(json.dumps(chrome_trace(runs)))


def _title(args: argparse.Namespace) -> str:
    if args.preset is not None:
        return f"{args.preset}: {preset(args.preset).source}"
    return f"PP{args.pp}, stage {args.stage_ms} ms (simulated)"


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _splits(text: str) -> tuple[tuple[int, ...], ...]:
    return tuple(_integers(part) for part in text.split("/"))


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))
