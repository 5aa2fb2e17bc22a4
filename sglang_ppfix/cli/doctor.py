"""``sglang-ppfix doctor``."""

import argparse
import json
import os

from sglang_ppfix.doctor import State, examine
from sglang_ppfix.doctor.render import render

HELP = "check this environment: would the plugin work here?"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument(
        "--url", help="also ask this running server whether every rank is hooked"
    )
    parser.add_argument(
        "--api-key",
        default=os.environ.get("SGLANG_API_KEY"),
        help="bearer token for it (default: the environment's SGLANG_API_KEY)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def run(args: argparse.Namespace) -> int:
    """0: works, perhaps with warnings; 1: does not work."""
    report = examine(args.url, args.api_key)
    if args.json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        print(render(report))
    return int(report.state is State.FAIL)
