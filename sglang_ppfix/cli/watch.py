"""``sglang-ppfix watch --url URL``."""

import argparse
import asyncio

from rich.console import Console
from rich.live import Live

from sglang_ppfix.observe.gpu import NoGpuError, is_here, sample_gpus
from sglang_ppfix.observe.watch_view import view
from sglang_ppfix.remote import RemoteError

from . import UserError
from .set import add_server_arguments, server_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    add_server_arguments(parser)
    parser.add_argument("--interval", type=float, default=1.0, metavar="SECONDS")
    parser.add_argument(
        "--count", type=int, metavar="N", help="end after N looks (default: Ctrl-C)"
    )


def run(args: argparse.Namespace) -> int:
    """Look again and again, until Ctrl-C or ``--count``."""
    if args.interval <= 0:
        raise UserError(f"--interval {args.interval}: must be above 0")
    try:
        asyncio.run(_watch(args))
    except RemoteError as error:
        raise UserError(str(error)) from error
    return 0


async def _watch(args: argparse.Namespace) -> None:
    console = Console()
    before, looks = None, 0
    async with server_of(args) as server:
        with Live(console=console, auto_refresh=False, transient=False) as live:
            while args.count is None or looks < args.count:
                state = await server.state()
                gpus = await asyncio.to_thread(_gpus, args.url)
                live.update(view(state, before, gpus), refresh=True)
                before, looks = state, looks + 1
                await asyncio.sleep(args.interval)


def _gpus(url: str) -> list[str]:
    if not is_here(url):
        return ["no GPU samples: the server is on another machine"]
    try:
        return [use.words() for use in sample_gpus(0.0)]
    except NoGpuError as error:
        return [str(error)]
