"""``sglang-ppfix diagnose``: what limits the pipeline, from logs or a live server."""

import argparse
import json
import sys

from sglang_ppfix.observe import diagnosis_run as run_module
from sglang_ppfix.observe.diagnosis_text import as_data

from . import UserError
from .set import add_key_argument

HELP = "say from a log file or a live server what limits the pipeline"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="server logs, plain or gzip; - is stdin",
    )
    parser.add_argument("--url", help="a live server, e.g. http://127.0.0.1:30000")
    add_key_argument(parser)
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="how long to watch it (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print data, not text")
    parser.add_argument("--plot", metavar="FILE", help="draw the log as a picture")
    hints = parser.add_argument_group("what the log may not say")
    hints.add_argument("--clients", type=int, help="requests kept in flight")
    hints.add_argument("--pp-size", type=int)
    hints.add_argument("--async-depth", type=int, help="--pp-async-batch-depth")
    hints.add_argument("--max-running-requests", type=int)
    hints.add_argument("--cap", type=int, help="--pp-max-micro-batch-size")
    hints.add_argument(
        "--layers", help="layers of the model, or per stage: 61 or 8,8,7"
    )
    hints.add_argument("--model", help="name or folder: layers and experts")
    hints.add_argument("--release", help="SGLang release, e.g. 0.5.23")
    hints.add_argument(
        "--point",
        action="append",
        default=[],
        metavar="CLIENTS=TOK_S",
        help="throughput that a client measured; repeat for more",
    )


def run(args: argparse.Namespace) -> int:
    """Run the verb; returns 0 healthy, 1 a finding, 2 not enough data."""
    try:
        report = run_module.diagnose(run_module.Request.from_arguments(vars(args)))
    except run_module.ERRORS as error:
        raise UserError(str(error)) from error
    if args.json:
        json.dump(as_data(report), sys.stdout, indent=1)
        print()
    else:
        run_module.show(report)
    return run_module.exit_status(report)
