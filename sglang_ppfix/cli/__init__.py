"""The ``sglang-ppfix`` command: one verb a module, found by name.

A verb module has ``HELP`` (one line), ``add_arguments(parser)`` and
``run(args) -> int`` (the exit status), and no logic of its own. A verb is imported
only when it is asked for, so that ``doctor`` works where matplotlib does not.
"""

import argparse
import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence

from sglang_ppfix import __version__

_HELP = {
    "ab": "compare policies on a running server, off and on in turn",
    "advise": "from model, GPUs, link and load to a command line",
    "diagnose": "say from a log file or a live server what limits the pipeline",
    "doctor": "check this environment: would the plugin work here?",
    "lab": "run real SGLang pipelines on the CPU, stock against plugin",
    "patches": "the same change as diffs: list, verify, export, apply, revert",
    "set": "change policy, target slots or log level of a running server",
    "simulate": "predict throughput with a simulator of SGLang's ring",
    "watch": "live view of a running server: slots, bubbles, throughput",
}


class UserError(Exception):
    """Wrong input or surroundings: shown as one line, exit status 2."""


def verbs() -> list[str]:
    """Verbs that exist in this installation, sorted."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name.removesuffix("_") for name in found if not name.startswith("_"))


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script; returns the exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="sglang-ppfix",
        description="Even filling of SGLang's pipeline-parallel ring, and its tools.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    wanted = next((word for word in argv if not word.startswith("-")), None)
    for verb in verbs():
        command = commands.add_parser(verb, help=_HELP.get(verb, ""))
        if verb == wanted:
            module = importlib.import_module(f"{__name__}.{verb}")
            command.description = _HELP.get(verb)
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    args = parser.parse_args(argv)
    try:
        status = int(args.run(args))
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader has enough (``| head``): no traceback, also not at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except UserError as error:
        print(f"sglang-ppfix {args.verb}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
