"""The one-GPU benchmark against a stand-in server: order of arms, records, deadline."""

import asyncio
import io
import json
import sys
import time
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from sglang_ppfix.remote import RemoteServer

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "one_gpu"


@pytest.fixture
def modules(monkeypatch):
    """The benchmark's own modules, which are no package."""
    names = ("cases", "models", "measure", "summary")
    monkeypatch.syspath_prepend(str(BENCHMARK))
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    import cases
    import measure
    import summary

    yield cases, measure, summary
    for name in names:
        sys.modules.pop(name, None)


class StandIn:
    """Answers as a server with the plugin; twice as fast where it balances."""

    def __init__(self):
        self.changes = []
        self.policy, self.cap = 2, 4
        self.generated = []
        self.laps = 0

    def app(self):
        app = web.Application()
        app.router.add_post("/generate", self.generate)
        app.router.add_post("/set_internal_state", self.change)
        app.router.add_get("/server_info", self.info)
        return app

    async def generate(self, request):
        body = await request.json()
        sampling = body["sampling_params"]
        self.generated.append((body["rid"], self.policy, sampling))
        self.laps += 100
        await asyncio.sleep(0.02 if self.policy == 2 else 0.04)
        tokens = [sum(body["input_ids"]) % 97] * sampling["max_new_tokens"]
        meta = {"finish_reason": {"type": "length"}}
        return web.json_response({"output_ids": tokens, "meta_info": meta})

    async def change(self, request):
        values = (await request.json())["server_args"]
        self.changes.append(values)
        self.policy = values["ppfix_policy"]
        self.cap = values["pp_max_micro_batch_size"]
        return web.json_response([True])

    async def info(self, _request):
        plain = dict.fromkeys(
            ("policy", "target_slots", "cap", "laps", "lap_s", "filled", "largest"), 1
        )
        more = ("even", "stretched_laps", "cpu_filled_s", "cpu_empty_s")
        state = {
            "active": True,
            **plain,
            **dict.fromkeys(more, 0),
            "laps": self.laps,
            "largest": 2 if self.policy == 2 else 4,
            "decode_tokens": 0,
            "deferred": {},
            "ranks": [
                {
                    "pp_rank": rank,
                    "lap_s": 0.02,
                    "cpu_filled_s": 0.001,
                    "decode_ms": {"1": 4.0, "2": 5.0, "4": 7.0},
                }
                for rank in range(2)
            ],
        }
        return web.json_response({"internal_states": [{"ppfix": state}]})


def drive(stand_in, modules, deadline_s, steps):
    """Run ``steps`` of a session; records, and what it said."""
    cases, measure, _ = modules
    out, said = io.StringIO(), []

    async def run():
        async with (
            TestServer(stand_in.app()) as http,
            RemoteServer(str(http.make_url(""))) as server,
        ):
            session = measure.Session(
                server,
                cases.CASES["toy-pp2"],
                out,
                time.monotonic() + deadline_s,
                said.append,
            )
            session.write("case", pp=2, rows=8, stock_cap=4, shape=None)
            try:
                await steps(session)
            except measure.OutOfTime:
                said.append("time is over")
            said.extend(session.summary())

    asyncio.run(run())
    return [json.loads(line) for line in out.getvalue().splitlines()], said


async def everything(session):
    await session.warm_up()
    await session.bursts(0)
    await session.greedy_outputs()
    await session.bursts(1)
    await session.observed()
    await session.traffic(0)


def test_arms_take_turns_and_pairs_come_out(modules):
    """Breaks when an arm is measured under another policy, when the order does not
    turn around, or when pairs are taken across rounds."""
    summary = modules[2]
    stand_in = StandIn()
    records, said = drive(stand_in, modules, 600, everything)

    bursts = [r for r in records if r["kind"] == "window" and r["load"] == "burst"]
    of_4 = [r["arm"] for r in bursts if r["clients"] == 4 and r["round"] == 0]
    assert of_4[:3] == ["stock", "balanced", "static cap"]
    turned = [r["arm"] for r in bursts if r["clients"] == 4 and r["round"] == 1]
    assert turned == of_4[::-1]
    # Eight requests need the stock cap: a fixed cap would be the same.
    assert "static cap" not in [r["arm"] for r in bursts if r["clients"] == 8]
    for rid, policy, sampling in stand_in.generated:
        if rid.startswith(("r0-balanced", "r1-balanced")):
            assert (policy, sampling["temperature"]) == (2, 1.0)
        if rid.startswith(("r0-stock", "r0-static")):
            assert policy == 0
    result = summary.summarise(records)
    burst = next(
        x for x in result["loads"] if (x["load"], x["clients"]) == ("burst", 4)
    )
    pairs = burst["arms"]["balanced"]["over_stock"]["pairs"]
    tok_s = {(r["arm"], r["round"]): r["tok_s"] for r in bursts if r["clients"] == 4}
    assert pairs == [
        pytest.approx(tok_s["balanced", r] / tok_s["stock", r], abs=1e-3)
        for r in (0, 1)
    ]
    assert burst["arms"]["static cap"]["cap"] == 2
    assert {g["identical"] for g in result["greedy"]} == {8}
    assert {x["load"] for x in result["loads"]} == {"burst", "closed", "poisson"}
    stages = {(s["arm"], s["clients"]): s for s in result["stages"]}
    assert stages["balanced", 4]["decode_ms"] == [5.0, 5.0]
    assert stages["observe", 4]["decode_ms"] == [7.0, 7.0]
    assert any("burst C=8 balanced" in line for line in said)


def test_no_window_begins_that_would_end_too_late(modules):
    """Breaks when the deadline is looked at after a window instead of before."""
    records, said = drive(StandIn(), modules, 3.0, lambda session: session.bursts(0))
    assert "time is over" in said
    assert [r["kind"] for r in records] == ["case"]


def test_same_requests_for_all_arms_of_a_round_others_in_the_next(modules):
    """Breaks when arms get different prompts, or a round repeats those before it."""
    cases, measure, _ = modules
    session = measure.Session(None, cases.CASES["toy-pp2"], io.StringIO(), 0.0, print)
    prompts = [
        [r.prompt for r in session.burst(4, seed, tag, 8).requests]
        for seed, tag in ((0, "a"), (0, "b"), (1, "a"))
    ]
    assert prompts[0] == prompts[1] != prompts[2]
    rids = [session.burst(4, 0, tag, 8).requests[0].rid for tag in ("a", "b")]
    assert rids[0] != rids[1]


def test_a_policy_that_chooses_gets_bursts_to_choose_by(modules):
    """Breaks when auto is measured while it still tries numbers of slots, or when the
    switch, which places requests anew, comes between the last of them and the burst
    that is measured."""
    stand_in = StandIn()

    async def two_rounds(session):
        await session.bursts(0)
        await session.bursts(1)

    records, _ = drive(stand_in, modules, 600, two_rounds)
    windows = [r for r in records if r["kind"] == "window"]
    assert len(stand_in.changes) == len(windows)
    auto = [rid for rid, policy, _ in stand_in.generated if policy == 3]
    sent = [rid for rid in auto if rid.startswith("settle") and "-1-" in rid]
    # One client, 100 laps a burst: four in the first round to see 300 without a change.
    assert len(sent) == 5 + 1
    measured = sum(r["tokens"] for r in windows if r["arm"] == "auto")
    assert measured == 12 * sum(not rid.startswith("settle") for rid in auto)


@pytest.mark.parametrize(
    ("case", "clients", "cap"),
    [
        ("steep-pp4", 8, 2),
        ("steep-pp4", 1, 1),
        ("steep-pp4", 64, 8),
        ("steep-pp8", 9, 2),
    ],
)
def test_fixed_cap_spreads_the_burst_over_the_stages(modules, case, clients, cap):
    """Breaks when the fixed cap is rounded down, or exceeds what SGLang accepts."""
    assert modules[0].CASES[case].static_cap(clients) == cap
