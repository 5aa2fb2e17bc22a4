"""Arms in turn inside one server; every window is written down as soon as it ends."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from statistics import median
from typing import IO, Any

import numpy as np
from cases import Case

from sglang_ppfix.hooks.change import POLICY_CODES
from sglang_ppfix.lab.client import send_load
from sglang_ppfix.lab.load import (
    GREEDY,
    Lengths,
    Load,
    RequestResult,
    plan_load,
    throughput,
)
from sglang_ppfix.remote import RemoteServer

CODES = {policy.value: code for policy, code in POLICY_CODES.items()}
PROMPT = Lengths(8, 8)
#: No window takes that long on a server that works.
HANGS_S = 60.0
#: A random MoE's greedy tokens fall into cycles, and its routing with them.
SAMPLED = {"temperature": 1.0}
#: Laps without a change after which ``auto`` is taken to have chosen, and bursts after
#: which that is not waited for.
SETTLED_LAPS = 300
MOST_SETTLING = 14
_STATE = (
    *("policy", "target_slots", "cap", "laps", "lap_s", "filled", "largest", "even"),
    *("stretched_laps", "cpu_filled_s", "cpu_empty_s", "decode_tokens", "deferred"),
)
_RANK = (
    *("pp_rank", "policy", "lap_s", "cpu_filled_s", "cpu_empty_s", "decode_ms"),
    *("busy_s", "waiting_s", "nothing_to_do_s", "digest", "iteration"),
)


@dataclass(frozen=True)
class Arm:
    """What decides about filling: a policy of the plugin, or stock with a fixed cap."""

    name: str
    policy: str
    static_cap: bool = False
    # The policy chooses while it runs, and a request keeps its slot for life:
    # unmeasured bursts of the same size go first.
    settles: bool = False

    def settings(self, case: Case, clients: int) -> dict[str, int]:
        """Keys of ``/set_internal_state``."""
        cap = case.static_cap(clients) if self.static_cap else case.stock_cap
        return {
            "pp_max_micro_batch_size": cap,
            "ppfix_policy": CODES[self.policy],
            "ppfix_slots": 0,
        }


STOCK = Arm("stock", "stock")
STATIC = Arm("static cap", "stock", static_cap=True)
BALANCED = Arm("balanced", "balanced")
OBSERVE = Arm("observe", "observe")
AUTO = (Arm("auto", "auto", settles=True),) if "auto" in CODES else ()


def arms(case: Case, clients: int) -> list[Arm]:
    """Arms that differ at this number of clients."""
    differs = case.static_cap(clients) != case.stock_cap
    return [STOCK, BALANCED, *([STATIC] if differs else []), *AUTO]


class OutOfTime(Exception):
    """The next window would not end before the deadline."""


@dataclass
class Session:
    """Measures one case on one running server.

    Attributes:
        deadline: no window begins that is expected to end after it (monotonic).
    """

    server: RemoteServer
    case: Case
    out: IO[str]
    deadline: float
    say: Callable[[str], None]
    windows: int = 0
    _settled: set[int] = field(default_factory=set)
    _took: dict[tuple[str, int, str], float] = field(default_factory=dict)
    _tok_s: dict[tuple[str, int, str], dict[int, float]] = field(default_factory=dict)

    def write(self, kind: str, **values: Any) -> None:
        """Append one record."""
        record = {"kind": kind, "case": self.case.name, **values}
        self.out.write(json.dumps(record) + "\n")
        self.out.flush()

    def time_left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    async def switch(self, arm: Arm, clients: int) -> None:
        """Put ``arm`` in force on all ranks."""
        body = {"server_args": arm.settings(self.case, clients)}
        answer = await self.server.request("POST", "/set_internal_state", body)
        if answer not in (True, [True]):
            state = await self.server.state()
            raise RuntimeError(f"{body} was refused: {state['refused']}")

    async def window(
        self, arm: Arm, load: Load, name: str, round_: int, keep_outputs: bool = False
    ) -> list[RequestResult]:
        """Send ``load`` under ``arm`` and write down what came of it.

        Raises:
            OutOfTime: there is too little time for it.
        """
        key = (name, load.clients, arm.name)
        if self.time_left() < 1.3 * self._took.get(key, 4.0):
            raise OutOfTime
        await self.switch(arm, load.clients)
        if arm.settles:
            await self._settle(load)
        begin = time.monotonic()
        results = await self._send(load)
        state = await self.server.state()
        took = self._took[key] = time.monotonic() - begin
        self.windows += 1
        latency = [r.finished - r.sent for r in results]
        errors = [r.error for r in results if r.error]
        tok_s = throughput(results)
        if not errors:
            self._tok_s.setdefault(key, {})[round_] = tok_s
        self.write(
            "window",
            load=name,
            clients=load.clients,
            arm=arm.name,
            round=round_,
            cap=arm.settings(self.case, load.clients)["pp_max_micro_batch_size"],
            tok_s=round(tok_s, 2),
            tokens=sum(len(r.output) for r in results),
            seconds=round(took, 3),
            latency_mean_s=round(float(np.mean(latency)), 4),
            latency_p99_s=round(float(np.percentile(latency, 99)), 4),
            errors=errors,
            state={key: state[key] for key in _STATE},
            ranks=[
                {key: rank[key] for key in _RANK if key in rank}
                for rank in state["ranks"]
            ],
            **({"outputs": [r.output for r in results]} if keep_outputs else {}),
        )
        if errors:
            self.say(
                f"  {arm.name} C={load.clients}: {len(errors)} errors: {errors[0]}"
            )
        return results

    async def _settle(self, load: Load) -> None:
        """One burst, and before the first one that is measured as many as it takes."""
        await self._send(_retag(load, "settle-"))
        if load.clients in self._settled:
            return
        self._settled.add(load.clients)
        slots: list[int] = []
        since = 0
        for number in range(MOST_SETTLING):
            state = await self.server.state()
            if not slots or state["target_slots"] != slots[-1]:
                since = state["laps"]
            slots.append(state["target_slots"])
            if state["laps"] - since > SETTLED_LAPS:
                break
            await self._send(_retag(load, f"settle{number}-"))
        self.write("settling", clients=load.clients, slots=slots)
        self.say(f"  auto C={load.clients}: {slots} slots while it settled")

    async def _send(self, load: Load) -> list[RequestResult]:
        limit = min(max(self.time_left(), 5.0), HANGS_S)
        results = await send_load(self.server.url, load, timeout_s=limit)
        if limit == HANGS_S and not any(r.output for r in results):
            raise RuntimeError(f"no request was answered in {HANGS_S:.0f} s")
        return results

    def burst(
        self, clients: int, seed: int, tag: str, tokens: int, greedy: bool = False
    ) -> Load:
        """``clients`` requests at once, each a call of its own."""
        return plan_load(
            "closed",
            clients,
            PROMPT,
            Lengths(tokens, tokens),
            seed,
            sampling=GREEDY if greedy else SAMPLED,
            rid_prefix=f"{tag}-{clients}-",
        )

    async def warm_up(self) -> None:
        """Every micro-batch size once: kernels are chosen and caches are warm."""
        for clients in sorted(self.case.clients):
            for arm in (STOCK, BALANCED):
                await self.switch(arm, clients)
                load = self.burst(clients, 0, f"warm-{arm.name}", 6)
                await self._send(load)

    async def greedy_outputs(self, tokens: int = 32) -> None:
        """The same greedy requests under every arm, and once more under stock."""
        for clients in (8, 32):
            if clients not in self.case.clients:
                continue
            reference: list[list[int]] = []
            # Stock again: how far it agrees with itself bounds what can be asked.
            again = Arm("stock again", "stock")
            for number, arm in enumerate([*arms(self.case, clients), again]):
                tag = f"greedy{number}"
                load = self.burst(clients, 7, tag, tokens, greedy=True)
                results = await self.window(arm, load, "greedy", 0)
                outputs = [r.output for r in results]
                reference = reference or outputs
                agree = [_common(a, b) for a, b in zip(reference, outputs, strict=True)]
                same = sum(length == tokens for length in agree)
                self.write(
                    "greedy",
                    clients=clients,
                    arm=arm.name,
                    identical=same,
                    first_difference=sorted(a for a in agree if a < tokens),
                )
                self.say(f"  greedy C={clients} {arm.name}: {same}/{clients} as stock")

    async def bursts(self, round_: int) -> None:
        """One round: every burst size, every arm, in an order that turns around."""
        for clients in self.case.clients:
            order = arms(self.case, clients)
            for arm in order if round_ % 2 == 0 else reversed(order):
                tag = f"r{round_}-{arm.name}"
                load = self.burst(clients, round_, tag, self.case.output_tokens)
                await self.window(arm, load, "burst", round_)

    async def observed(self) -> None:
        """Stock decisions with the stage clock on: ``t(b)`` as stock sees it."""
        for clients in self.case.clients:
            load = self.burst(clients, 99, "observe", self.case.output_tokens)
            await self.window(OBSERVE, load, "burst", -1)

    async def traffic(self, round_: int) -> None:
        """Closed loop with drawn lengths, then Poisson at a moderate rate."""
        clients = 3 * self.case.pp
        lengths = Lengths.parse(f"exp:{self.case.output_tokens}", "output")
        closed, poisson = (
            plan_load(
                arrival,
                clients,
                Lengths(8, 64),
                lengths,
                round_,
                requests=3 * clients,
                rate_per_s=self.rate(clients) if arrival == "poisson" else None,
                sampling=SAMPLED,
            )
            for arrival in ("closed", "poisson")
        )
        for name, load in (("closed", closed), ("poisson", poisson)):
            order = [STOCK, BALANCED, *AUTO]
            for arm in order if round_ % 2 == 0 else reversed(order):
                tagged = _retag(load, f"{name}{round_}-{arm.name}-")
                await self.window(arm, tagged, name, round_)

    def rate(self, clients: int) -> float:
        """Arrivals a second: 0.6 of what stock made of a burst of about that size."""
        known = {
            c: values
            for (name, c, arm), values in self._tok_s.items()
            if (name, arm) == ("burst", "stock")
        }
        nearest = min(known, key=lambda c: abs(c - clients))
        return 0.6 * median(known[nearest].values()) / self.case.output_tokens

    def summary(self) -> Iterator[str]:
        """Throughput and paired ratios so far, one line a load and arm."""
        for (name, clients, arm), values in sorted(self._tok_s.items()):
            before = self._tok_s.get((name, clients, "stock"), {})
            ratios = [values[r] / before[r] for r in sorted(values) if r in before]
            text = " ".join(f"{ratio:.2f}" for ratio in ratios)
            yield (
                f"{name} C={clients} {arm}: {median(values.values()):.1f} tok/s, "
                f"over stock: {text}"
            )


def _common(a: list[int], b: list[int]) -> int:
    """Length of the common start."""
    for index, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return index
    return min(len(a), len(b))


def _retag(load: Load, prefix: str) -> Load:
    requests = tuple(replace(r, rid=prefix + r.rid) for r in load.requests)
    return replace(load, requests=requests)
