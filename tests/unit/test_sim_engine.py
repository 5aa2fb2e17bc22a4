"""Runs: what must hold whatever the policy decides."""

import random
from dataclasses import replace

import numpy as np
import pytest

from sglang_ppfix.sim import (
    POLICIES,
    CpuTimes,
    Load,
    Outcome,
    Profile,
    Server,
    burst,
    closed_loop,
    even_profile,
    poisson,
    simulate,
)


def _random_run(rng: random.Random) -> tuple[Server, Profile, Load]:
    """A small server under a small load, with every limit tight now and then."""
    stages = rng.randint(2, 6)
    server = Server(
        stages,
        rng.choice([0, 0, 1, 2, 4]),
        max_running_requests=rng.choice([1, 3, 8, 16, 24, 40]),
        cap=rng.choice([None, None, 1, 3, 6]),
        target_slots=rng.choice([None, None, 1, stages]),
        kv_tokens=rng.choice([None, None, 400, 900, 3000]),
        chunked_prefill_size=rng.choice([None, 32, 64, 128, 8192]),
        max_prefill_tokens=rng.choice([50, 16384]),
    )
    cpu = rng.choice([CpuTimes(), CpuTimes(0, 0, 0, 0), CpuTimes(1e-3, 5e-3, 3e-3)])
    profile = even_profile(
        stages, rng.uniform(1e-3, 10e-3), rng.uniform(0, 5e-3), cpu=cpu
    )
    count = rng.randint(1, 60)
    sizes = (rng.choice([5, 40, 150]), rng.choice([1, 5, 30]))
    shape, seed = rng.choice(["fixed", "uniform", "long-tail"]), rng.randint(0, 10**6)
    kind = rng.randint(0, 2)
    if kind == 0:
        stagger = rng.choice([0.0, 0.2])
        load = closed_loop(
            rng.randint(1, 30), count, *sizes, shape=shape, seed=seed, stagger=stagger
        )
    elif kind == 1:
        every = rng.choice([0.1, 5.0])
        load = burst(rng.randint(1, 30), count, every, *sizes, shape=shape, seed=seed)
    else:
        load = poisson(rng.uniform(1, 100), count, *sizes, shape=shape, seed=seed)
    if server.kv_tokens:
        most = server.kv_tokens // 2 - 5
        load = replace(
            load,
            prompts=[min(n, most) for n in load.prompts],
            outputs=[min(n, most) for n in load.outputs],
        )
    if rng.random() < 0.3:
        away = {i: rng.uniform(0, 1) for i in range(count) if rng.random() < 0.3}
        load = replace(load, aborts=away)
    if rng.random() < 0.3:
        load = replace(load, limits=[n + rng.randint(0, 100) for n in load.outputs])
    return server, profile, load


def _ends(outcome: Outcome) -> np.ndarray:
    return np.array([request.end for request in outcome.requests])


@pytest.mark.parametrize("policy", POLICIES)
def test_skipping_turns_changes_nothing(policy: str) -> None:
    """A run that works out every turn, and one that skips the turns in which nothing
    can change, must be the same run. Breaks when a turn is skipped in which a slot
    would have acted, or when what passed meanwhile is counted wrongly."""
    rng = random.Random(7)
    for _ in range(25):
        server, profile, load = _random_run(rng)
        skipping = simulate(server, profile, load, policy, keep_admissions=True)
        stepping = simulate(
            server, profile, load, policy, keep_admissions=True, record=True
        )
        assert skipping.admissions == stepping.admissions
        assert skipping.turns == stepping.turns
        assert skipping.retractions == stepping.retractions
        assert _ends(skipping) == pytest.approx(_ends(stepping), rel=1e-9)
        assert skipping.bubble == pytest.approx(stepping.bubble, abs=1e-9)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_request_ends_with_all_its_tokens(policy: str) -> None:
    """Breaks when a request is lost between slots, counted twice, or ends early; and
    when a forward of a stage overlaps the next one."""
    rng = random.Random(8)
    for _ in range(25):
        server, profile, load = _random_run(rng)
        outcome = simulate(server, profile, load, policy, record=True)
        assert len(outcome.requests) == len(load.prompts)
        for request in outcome.requests:
            assert request.end >= request.arrival
            assert request.aborted or request.tokens == request.output
        free = dict.fromkeys(range(server.pp_size), 0.0)
        for span in outcome.spans or ():
            assert span.start >= free[span.stage] - 1e-9
            free[span.stage] = span.end


def test_memory_and_rows_are_whole_again_after_a_run() -> None:
    """Breaks when a request keeps or gives back a token or a row too many."""
    from sglang_ppfix.sim.engine import Engine
    from sglang_ppfix.sim.policies import make

    rng = random.Random(9)
    for _ in range(40):
        server, profile, load = _random_run(rng)
        for policy in POLICIES:
            scheduler = make(policy, server, load)
            Engine(server, profile, load, scheduler).run()
            assert scheduler.memory.rows == server.max_running_requests
            assert sum(scheduler.occupancy) == 0
            if server.kv_tokens:
                assert scheduler.memory.free == server.kv_tokens


def test_balanced_loses_no_request_where_stock_loses_some() -> None:
    """Tight KV. Breaks when a lone request of a slot is given up although other slots
    hold tokens, or when stock's own loss is no longer simulated."""
    profile = even_profile(4, 5e-3, 1e-3)
    server = Server(4, max_running_requests=24, kv_tokens=700)
    lost = {"stock": 0, "balanced": 0}
    for seed in range(6):
        load = closed_loop(24, 100, 30, 90, shape="long-tail", seed=seed)
        load = replace(
            load,
            prompts=[min(n, 200) for n in load.prompts],
            outputs=[min(n, 400) for n in load.outputs],
            limits=[450] * 100,
        )
        for policy in lost:
            lost[policy] += simulate(server, profile, load, policy).lost
    assert lost["stock"] > 0
    assert lost["balanced"] == 0


def test_same_seed_same_run_and_plain_python_the_same() -> None:
    """Breaks with any order that is not fixed (a set, a hash), and when compiled and
    plain arithmetic differ."""
    pytest.importorskip("numba")
    server, profile = Server(4, 1, 16), even_profile(4, 4e-3, 1e-3)
    load = poisson(20, 60, shape="long-tail", seed=3)
    one, two, plain = (
        simulate(server, profile, load, "balanced", compiled=compiled)
        for compiled in (True, True, False)
    )
    assert np.array_equal(_ends(one), _ends(two))
    assert np.array_equal(_ends(one), _ends(plain))


def test_a_request_that_cannot_fit_is_refused_in_one_line() -> None:
    """SGLang refuses it, too; a simulator that waits for it would never end."""
    load = closed_loop(1, 1, 500, 600, shape="fixed")
    with pytest.raises(ValueError, match="kv_tokens=1000 cannot hold it"):
        simulate(Server(2, kv_tokens=1000), even_profile(2, 1e-3, 0), load)
