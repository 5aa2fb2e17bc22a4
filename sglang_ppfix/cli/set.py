"""``sglang-ppfix set --url URL policy=observe``."""

import argparse
import asyncio
import os

from sglang_ppfix.hooks.change import KEYS, ChangeError
from sglang_ppfix.remote import RemoteError, RemoteServer, confirmed

from . import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    add_server_arguments(parser)
    parser.add_argument(
        "changes",
        nargs="+",
        metavar="KEY=VALUE",
        help=f"keys: {', '.join(KEYS)}; for example policy=observe slots=auto log=off",
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="how long to wait for every rank's confirmation (default: 5)",
    )


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """``--url`` and the keys, as every verb that asks a server has them."""
    parser.add_argument("--url", required=True, help="base address of the server")
    add_key_argument(parser)
    parser.add_argument(
        "--admin-api-key",
        default=os.environ.get("SGLANG_ADMIN_API_KEY"),
        help="for changes, where the server has one (default: the environment's "
        "SGLANG_ADMIN_API_KEY)",
    )


def add_key_argument(parser: argparse.ArgumentParser) -> None:
    """``--api-key``."""
    parser.add_argument(
        "--api-key",
        default=os.environ.get("SGLANG_API_KEY"),
        help="bearer token (default: the environment's SGLANG_API_KEY)",
    )


def server_of(args: argparse.Namespace) -> RemoteServer:
    """The server that the arguments name."""
    return RemoteServer(args.url, args.api_key, args.admin_api_key)


def run(args: argparse.Namespace) -> int:
    """Change the switch and show what every rank says."""
    words = {}
    for change in args.changes:
        key, equals, value = change.partition("=")
        if not equals:
            raise UserError(f"{change!r} is not KEY=VALUE")
        words[key] = value
    try:
        return asyncio.run(_change(args, words))
    except (ChangeError, RemoteError) as error:
        raise UserError(str(error)) from error


async def _change(args: argparse.Namespace, words: dict[str, str]) -> int:
    async with server_of(args) as server:
        state = await server.change(words)
        print(
            f"policy {state['policy']}, target slots {state['target_slots']}, "
            f"cap {state['cap']}, log {state['log']}"
        )
        ranks = await confirmed(server, state, args.wait)
    confirming = 0
    for rank in ranks:
        same = rank["policy"] == state["policy"]
        confirming += same and rank["target_slots"] == state["target_slots"]
        print(
            f"PP{rank['pp_rank']}: policy {rank['policy']}, target slots "
            f"{rank['target_slots']}, iteration {rank['iteration']}, "
            f"digest {rank['digest']}"
        )
    if confirming < state["stages"]:
        print(
            f"{confirming} of {state['stages']} ranks have confirmed; reports ride "
            "with batches, so the others follow with the next requests"
        )
    return 0
