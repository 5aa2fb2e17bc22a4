"""Measure a running server under two policies in turn, and leave it as it was."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sglang_ppfix.remote import RemoteError, RemoteServer

from .compare import Comparison, Window, pair_up
from .load import burst

Report = Callable[[str], None]


@dataclass(frozen=True)
class ABPlan:
    """What to measure.

    Attributes:
        policies: baseline first.
        pairs: how often both are measured.
        clients: requests of a burst of the built-in load; None watches the users'
            own traffic.
        prompt_tokens, output_tokens: lengths of the built-in load.
        bursts: bursts of the built-in load in a window.
        seconds: length of a window over the users' own traffic.
        settle_s: time between a switch and the window that follows: requests keep
            the slot in which they began.
    """

    policies: tuple[str, str] = ("stock", "balanced")
    pairs: int = 5
    clients: int | None = None
    prompt_tokens: int = 8
    output_tokens: int = 64
    bursts: int = 1
    seconds: float = 30.0
    settle_s: float = 10.0


async def run_ab(server: RemoteServer, plan: ABPlan, report: Report) -> Comparison:
    """Measure; the server ends in the state it was found in, whatever happens.

    Raises:
        RemoteError: the server does not answer, or has no traffic.
    """
    found = await server.state()
    windows = []
    try:
        if plan.clients is not None:
            await burst(server, plan.clients, plan.prompt_tokens, 8)
        for pair in range(plan.pairs):
            for policy in plan.policies:
                await server.change({"policy": policy})
                window = await _measure(server, plan, policy)
                report(
                    f"pair {pair + 1} of {plan.pairs}, {policy}: "
                    f"{window.tok_s:.1f} tok/s, {window.live:.1f} requests"
                )
                windows.append(window)
    finally:
        # Also on Ctrl-C: a production server must not keep a test's policy.
        await asyncio.shield(_restore(server, found))
    try:
        return pair_up(windows)
    except ValueError as error:
        raise RemoteError(f"{server.url}: {error}") from error


async def _restore(server: RemoteServer, found: Mapping[str, Any]) -> None:
    slots = found["requested_slots"]
    await server.change(
        {"policy": found["policy"], "slots": "auto" if slots is None else str(slots)}
    )


async def _measure(server: RemoteServer, plan: ABPlan, policy: str) -> Window:
    if plan.clients is not None:
        tokens, seconds = 0, 0.0
        for _ in range(plan.bursts):
            made, took = await burst(
                server, plan.clients, plan.prompt_tokens, plan.output_tokens
            )
            tokens, seconds = tokens + made, seconds + took
        return Window(policy, tokens / seconds, float(plan.clients))
    await asyncio.sleep(plan.settle_s)
    before, live, samples = await server.state(), 0.0, 0
    end = asyncio.get_running_loop().time() + plan.seconds
    while asyncio.get_running_loop().time() < end:
        await asyncio.sleep(min(1.0, plan.seconds / 10))
        after = await server.state()
        live, samples = live + sum(after["occupancy"]), samples + 1
    tokens = after["decode_tokens"] - before["decode_tokens"]
    seconds = after["clock_s"] - before["clock_s"]
    return Window(policy, tokens / seconds, live / samples)
