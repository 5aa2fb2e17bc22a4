"""Verb ``simulate``: predict throughput with a simulator of SGLang's ring."""

import argparse
import json
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from sglang_ppfix.sim import Server
from sglang_ppfix.sim.cases import Sweep, own_cases, preset_cases
from sglang_ppfix.sim.hardware import find_gpu, find_link
from sglang_ppfix.sim.load_options import LoadOptions
from sglang_ppfix.sim.model_config import read_config
from sglang_ppfix.sim.policies import POLICIES
from sglang_ppfix.sim.presets import preset
from sglang_ppfix.sim.server import default_chunk
from sglang_ppfix.sim.stage_source import Shape, Stages
from sglang_ppfix.sim.sweep import Case, run_case, run_cases, without_bounds
from sglang_ppfix.sim.table import rows_table

from . import UserError
from ._files import check_outputs, writing
from ._simulate_options import add_arguments

__all__ = ["add_arguments", "run"]


def run(args: argparse.Namespace) -> int:
    """Run the sweep and show what came out."""
    names = ("json", "plot", "gantt", "trace")
    check_outputs({f"--{name}": getattr(args, name) for name in names})
    if (args.plot or args.gantt) and find_spec("matplotlib") is None:
        raise UserError(
            "--plot and --gantt need matplotlib: pip install 'sglang-ppfix[plot]'"
        )
    try:
        _check_together(args)
        cases = _cases(args)
        if args.no_bounds:
            cases = [
                replace(case, readings=without_bounds(case.readings)) for case in cases
            ]
        with Progress(console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("simulating", total=len(cases))
            rows = run_cases(cases, args.jobs, lambda: progress.advance(task))
        title = _title(args, cases)
        with writing():
            _pictures(args, cases, rows, title)
    except ValueError as error:
        raise UserError(str(error)) from None
    document = json.dumps({"title": title, "rows": rows}, indent=1)
    if args.json == "-":
        print(document)
        return 0
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(rows_table(rows, title))
    if args.json:
        with writing():
            Path(args.json).write_text(document + "\n")
        console.print(f"figures: {args.json}")
    return 0


def _check_together(args: argparse.Namespace) -> None:
    """Refuse options of which one would be ignored.

    Raises:
        ValueError: which ones.
    """
    # Each is another source of stage times.
    times = ("preset", "stage_ms", "prefill_ms", "head_ms")
    machine = ("gpu", "link", "tp")
    if args.config is None:
        for name in machine:
            if getattr(args, name) is not None:
                raise ValueError(f"--{name}: needs --config, the model's config.json")
        return
    for name in times:
        if getattr(args, name) is not None:
            option = name.replace("_", "-")
            raise ValueError(f"--config: allowed is it or --{option}, not both")
    if args.gpu is None:
        raise ValueError("--config: needs --gpu")


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
    stages = _stages(args)
    chunk = args.chunked_prefill_size
    if chunk is None:
        chunk = 8192
        if isinstance(stages, Shape):
            chunk = default_chunk(stages.gpu.memory)
    server = Server(
        args.pp,
        max_running_requests=args.max_running_requests,
        chunked_prefill_size=chunk or None,
        kv_tokens=args.kv_tokens,
    )
    return own_cases(server, stages, sweep, LoadOptions(**given))


def _stages(args: argparse.Namespace) -> Stages | Shape:
    if args.config is None:
        return Stages(
            args.stage_ms or "2+2b",
            args.prefill_ms,
            args.hop_ms,
            args.head_ms or 0.0,
            args.spread or 0.0,
        )
    return Shape(
        read_config(args.config),
        find_gpu(args.gpu),
        find_link(args.link or "pcie5"),
        1 if args.tp is None else args.tp,
        args.hop_ms,
        args.spread,
    )


def _pictures(
    args: argparse.Namespace,
    cases: list[Case],
    rows: list[dict[str, object]],
    title: str,
) -> None:
    if args.plot or args.gantt:
        from sglang_ppfix.sim import plot
    if args.plot:
        plot.curves(rows, args.plot, title)
    if args.gantt or args.trace:
        chosen = cases[-len({case.policy for case in cases}) :]
        runs = [run_case(case, record=True) for case in chosen]
        if args.gantt:
            plot.gantt(runs, args.gantt, title)
        if args.trace:
            from sglang_ppfix.sim.perfetto import chrome_trace

            args.trace.write_text(json.dumps(chrome_trace(runs)))


def _title(args: argparse.Namespace, cases: list[Case]) -> str:
    if args.preset is not None:
        return f"{args.preset}: {preset(args.preset).source}"
    if args.config is not None:
        return f"{cases[0].readings[0].profile.name}, PP{args.pp} (simulated)"
    return f"PP{args.pp}, stage {args.stage_ms or '2+2b'} ms (simulated)"
