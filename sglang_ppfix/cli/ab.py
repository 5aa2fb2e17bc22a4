"""``sglang-ppfix ab --url URL --pairs 5 --json FILE``."""

import argparse
import asyncio
import json
import sys
from pathlib import Path

from sglang_ppfix.ab import ABPlan, Comparison, run_ab
from sglang_ppfix.hooks.change import POLICY_CODES, ChangeError
from sglang_ppfix.remote import RemoteError

from . import UserError
from ._files import check_outputs, writing
from .set import add_server_arguments, server_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    plan = ABPlan()
    add_server_arguments(parser)
    add = parser.add_argument
    names = [policy.value for policy in POLICY_CODES]
    add("--baseline", choices=names, default=plan.policies[0])
    add("--policy", choices=names, default=plan.policies[1])
    add("--pairs", type=_at_least(1), default=plan.pairs, help="off and on: a pair")
    add(
        "--clients",
        type=_at_least(1),
        help="built-in load: that many requests at once (default: your own traffic)",
    )
    add("--prompt-tokens", type=_at_least(1), default=plan.prompt_tokens)
    add("--output-tokens", type=_at_least(1), default=plan.output_tokens)
    add("--bursts", type=_at_least(1), default=plan.bursts, help="bursts a window")
    add("--seconds", type=float, default=plan.seconds, help="window over own traffic")
    add("--settle", type=float, default=plan.settle_s, help="seconds after a switch")
    add("--json", type=Path, metavar="FILE", help="write the result there, too")


def run(args: argparse.Namespace) -> int:
    """Measure, print the verdict; 0 whatever it says."""
    if args.seconds < 1 or args.settle < 0:
        raise UserError(
            f"--seconds {args.seconds:g}, --settle {args.settle:g}: "
            "at least 1, and at least 0"
        )
    check_outputs({"--json": args.json})
    plan = ABPlan(
        (args.baseline, args.policy),
        args.pairs,
        args.clients,
        args.prompt_tokens,
        args.output_tokens,
        args.bursts,
        args.seconds,
        args.settle,
    )
    try:
        comparison = asyncio.run(_run(args, plan))
    except (ChangeError, RemoteError) as error:
        raise UserError(str(error)) from error
    print(comparison.verdict())
    if args.json:
        with writing():
            args.json.write_text(json.dumps(comparison.to_json(), indent=1) + "\n")
    return 0


async def _run(args: argparse.Namespace, plan: ABPlan) -> Comparison:
    async with server_of(args) as server:
        return await run_ab(server, plan, lambda line: print(line, file=sys.stderr))


def _at_least(lowest: int) -> "type[int]":
    def parse(text: str) -> int:
        value = int(text)
        if value < lowest:
            raise argparse.ArgumentTypeError(f"{value}: must be {lowest} or more")
        return value

    parse.__name__ = "number"
    return parse  # type: ignore[return-value]
