"""Verb ``lab``: real SGLang pipelines on the CPU, stock against plugin."""

import argparse
import json
import signal
import sys
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from sglang_ppfix.lab import picture
from sglang_ppfix.lab.config import LabConfig
from sglang_ppfix.lab.errors import LabError
from sglang_ppfix.lab.experiment import ARMS, Experiment, plenty_of_kv, run_experiment
from sglang_ppfix.lab.load import Lengths
from sglang_ppfix.lab.perfetto import chrome_trace
from sglang_ppfix.lab.profile_file import stage_profile
from sglang_ppfix.lab.report import sentence, table, to_json
from sglang_ppfix.lab.stage_time import StageTimeError

from . import UserError
from ._files import check_outputs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    server = parser.add_argument_group("server")
    server.add_argument("--pp", type=int, default=4, metavar="P", help="stages")
    server.add_argument(
        "--max-running-requests", type=int, default=32, metavar="N", help="as SGLang's"
    )
    server.add_argument(
        "--async-depth", type=int, default=0, metavar="N", help="async batch depth"
    )
    server.add_argument(
        "--cap",
        type=int,
        metavar="N",
        help="pp_max_micro_batch_size (default SGLang's)",
    )
    server.add_argument("--chunked-prefill-size", type=int, metavar="TOKENS")
    server.add_argument(
        "--kv-tokens", type=int, metavar="TOKENS", help="KV pool (default: plenty)"
    )
    server.add_argument(
        "--port", type=int, metavar="PORT", help="HTTP port (default: a free one)"
    )
    server.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="environment of the servers; may be repeated",
    )
    device = parser.add_argument_group("emulated device")
    device.add_argument(
        "--stage-ms",
        default="20+10b",
        metavar="TIME",
        help='decode time of a stage: "40", "20+10b" (b requests), or a profile file',
    )
    device.add_argument(
        "--prefill-ms",
        metavar="TIME",
        help='prefill time: "30+0.3n" (n tokens); default t(1) + 1%% of t(1) a token',
    )
    device.add_argument(
        "--hop-ms", type=float, metavar="MS", help="latency between stages"
    )
    device.add_argument(
        "--head-ms", type=float, default=0.0, metavar="MS", help="extra on the last one"
    )
    device.add_argument(
        "--stage-factors", type=_floats, metavar="F,F,...", help="one factor a stage"
    )
    load = parser.add_argument_group("load")
    load.add_argument(
        "--clients",
        type=_integers,
        default=(1, 4, 8, 16, 32),
        metavar="C,C,...",
        help="requests in flight, a row each",
    )
    load.add_argument(
        "--load",
        choices=("burst", "closed", "poisson"),
        default="burst",
        dest="arrival",
    )
    lengths = 'fixed "40", uniform "10-60", or exponential "exp:40"'
    load.add_argument("--output-tokens", default="40", metavar="N", help=lengths)
    load.add_argument("--prompt-tokens", default="16", metavar="N", help=lengths)
    load.add_argument(
        "--requests-per-client", type=int, metavar="N", help="default 1, closed loop 4"
    )
    load.add_argument(
        "--rate", type=float, metavar="PER_S", help="arrivals of a Poisson load"
    )
    load.add_argument("--seed", type=int, default=0, metavar="N")
    load.add_argument(
        "--stream", action="store_true", help="let clients receive every token"
    )
    runs = parser.add_argument_group("runs and results")
    runs.add_argument(
        "--arms", type=_names, default=tuple(ARMS), metavar="ARM,ARM", help="which"
    )
    runs.add_argument(
        "--pairs", type=int, default=1, metavar="N", help="servers of every arm"
    )
    runs.add_argument(
        "--repeats", type=int, default=1, metavar="N", help="loads on a server"
    )
    runs.add_argument("--json", type=Path, metavar="FILE", help="all figures")
    runs.add_argument("--plot", type=Path, metavar="FILE", help="picture (PNG)")
    runs.add_argument(
        "--plot-clients", type=int, metavar="C", help="row of the picture (middle one)"
    )
    runs.add_argument(
        "--trace", type=Path, metavar="FILE", help="Perfetto trace (JSON)"
    )
    runs.add_argument(
        "--keep-logs", type=Path, metavar="DIR", help="keep server logs and traces"
    )


def run(args: argparse.Namespace) -> int:
    """Run the experiment and show what came out."""
    # A plain "kill" must stop the servers as Ctrl-C does.
    signal.signal(signal.SIGTERM, _interrupt)
    progress = Console(stderr=True, log_path=False)
    try:
        experiment = _experiment(args)
        columns = (SpinnerColumn(), TextColumn("{task.description}"))
        with Progress(
            *columns, TimeElapsedColumn(), console=progress, transient=True
        ) as spinner:
            task = spinner.add_task("starting")

            def report(line: str) -> None:
                spinner.update(task, description=line)
                progress.log(line)

            outcome = run_experiment(experiment, report, args.keep_logs)
        console = Console(width=None if sys.stdout.isatty() else 160)
        console.print(table(outcome))
        if args.json:
            args.json.write_text(json.dumps(to_json(outcome), indent=1) + "\n")
            console.print(f"figures: {args.json}")
        if args.trace:
            args.trace.write_text(json.dumps(chrome_trace(outcome)))
            console.print(f"trace, for ui.perfetto.dev: {args.trace}")
        if args.plot:
            clients = picture.draw(outcome, args.plot, args.plot_clients)
            console.print(f"picture of {clients} clients: {args.plot}")
        console.print(sentence(outcome), soft_wrap=True, highlight=False)
    except (LabError, StageTimeError) as error:
        raise UserError(str(error)) from None
    return 0


def _experiment(args: argparse.Namespace) -> Experiment:
    """What the options ask for."""
    prompt = Lengths.parse(args.prompt_tokens, "--prompt-tokens")
    output = Lengths.parse(args.output_tokens, "--output-tokens")
    per_client = args.requests_per_client
    if per_client is None:
        per_client = 1 if args.arrival == "burst" else 4
    profile = stage_profile(
        args.stage_ms,
        args.pp,
        prefill=args.prefill_ms,
        hop_ms=args.hop_ms,
        head_ms=args.head_ms,
        factors=args.stage_factors,
    )
    server = LabConfig(
        profile=profile,
        max_running_requests=args.max_running_requests,
        async_depth=args.async_depth,
        cap=args.cap,
        chunked_prefill_size=args.chunked_prefill_size,
        kv_tokens=args.kv_tokens
        or plenty_of_kv(args.max_running_requests, prompt, output),
        port=args.port,
        env=dict(_pair(text) for text in args.env),
    )
    check_outputs({"--json": args.json, "--plot": args.plot, "--trace": args.trace})
    if args.plot is not None:
        picture.require_matplotlib()
    return Experiment(
        server=server,
        clients=args.clients,
        prompt=prompt,
        output=output,
        arrival=args.arrival,
        requests_per_client=per_client,
        rate_per_s=args.rate,
        seed=args.seed,
        arms=args.arms,
        pairs=args.pairs,
        repeats=args.repeats,
        stream=args.stream,
    )


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise UserError(f"--env {text!r}: write KEY=VALUE")
    return key, value


def _integers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f'{text!r}: write whole numbers as "1,4,8"'
        ) from None


def _floats(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f'{text!r}: write numbers as "1,1,0.9"'
        ) from None


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
