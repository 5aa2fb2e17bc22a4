"""Verb ``advise``: from model, GPUs, link and load to a command line."""

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console

from sglang_ppfix.sim.advice import advise
from sglang_ppfix.sim.advice_text import print_advice
from sglang_ppfix.sim.hardware import GPUS, LINKS, find_gpu, find_link
from sglang_ppfix.sim.layouts import Wish
from sglang_ppfix.sim.model_config import read_config

from . import UserError
from ._files import check_outputs, writing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.add_argument(
        "--config",
        type=Path,
        required=True,
        metavar="FILE",
        help="config.json of the model, as on Hugging Face",
    )
    parser.add_argument(
        "--gpu", required=True, metavar="NAME", help=f"one of {', '.join(GPUS)}"
    )
    parser.add_argument("--gpus", type=_count, required=True, metavar="N")
    parser.add_argument(
        "--link", required=True, metavar="NAME", help=f"one of {', '.join(LINKS)}"
    )
    parser.add_argument(
        "--clients", type=_count, default=32, metavar="C", help="requests in flight"
    )
    parser.add_argument("--prompt-tokens", type=_count, default=512, metavar="N")
    parser.add_argument("--output-tokens", type=_count, default=512, metavar="N")
    parser.add_argument(
        "--goal",
        choices=("throughput", "latency"),
        default="throughput",
        help="tokens per second of all, or time per token of each",
    )
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="all figures"
    )


def run(args: argparse.Namespace) -> int:
    """Work it out and show it."""
    check_outputs({"--json": args.json})
    try:
        wish = Wish(
            model=read_config(args.config),
            gpu=find_gpu(args.gpu),
            gpus=args.gpus,
            link=find_link(args.link),
            clients=args.clients,
            prompt=args.prompt_tokens,
            output=args.output_tokens,
            goal=args.goal,
        )
        advice = advise(wish)
    except ValueError as error:
        raise UserError(str(error)) from None
    document = json.dumps(advice.to_json(), indent=1)
    if args.json == "-":
        print(document)
        return 0
    print_advice(advice, Console(width=None if sys.stdout.isatty() else 120))
    if args.json:
        with writing():
            Path(args.json).write_text(document + "\n")
    return 0


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: allowed is a whole number from 1")
    return int(text)
