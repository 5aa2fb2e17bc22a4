"""Who decides: stock as SGLang does, balanced by ``sglang_ppfix.policy``."""

import random

import pytest

from sglang_ppfix.policy import plan_turn
from sglang_ppfix.sim import (
    Load,
    Server,
    burst,
    closed_loop,
    even_profile,
    filling,
    simulate,
)
from sglang_ppfix.sim.engine import Engine
from sglang_ppfix.sim.filling import Balanced

PROFILE = even_profile(8, 2e-3, 2e-3)
BURST_OF_32 = Load("burst", [20] * 32, [50] * 32, arrivals=[0.0] * 32)


def _first_lap(policy: str, server: Server, load: Load) -> list[int]:
    outcome = simulate(server, PROFILE, load, policy, keep_admissions=True)
    assert outcome.admissions is not None
    taken = [0] * server.slots
    for turn, slot, rids in outcome.admissions:
        if turn < server.slots:
            taken[slot] += len(rids)
    return taken


def test_stock_fills_4_of_8_slots_with_32_requests() -> None:
    """The project's first observation. Breaks when stock spreads, or takes above its
    cap."""
    taken = _first_lap("stock", Server(8, max_running_requests=64), BURST_OF_32)
    assert taken == [8, 8, 8, 8, 0, 0, 0, 0]


def test_stock_fills_4_of_16_slots_with_async_depth_8() -> None:
    """The cap of stock knows nothing of depth."""
    taken = _first_lap("stock", Server(8, 8, max_running_requests=64), BURST_OF_32)
    assert taken == [8] * 4 + [0] * 12


def test_balanced_fills_8_slots_with_4() -> None:
    """Breaks when the simulator does not ask the rule, or asks it something else."""
    taken = _first_lap("balanced", Server(8, max_running_requests=64), BURST_OF_32)
    assert taken == [4] * 8


def test_balanced_decides_by_the_policy_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rule that lets no slot hold more than 2 must show. Breaks when the simulator
    has a rule of its own."""

    def at_most_two(*args: object) -> object:
        plan = plan_turn(*args)  # type: ignore[arg-type]
        return plan._replace(shares=tuple(min(share, 2) for share in plan.shares))

    filling._planned.cache_clear()
    monkeypatch.setattr(filling, "plan_turn", at_most_two)
    outcome = simulate(Server(8), PROFILE, BURST_OF_32, "balanced")
    filling._planned.cache_clear()
    assert outcome.largest <= 2


def test_plans_that_are_kept_are_those_of_the_rule() -> None:
    """Balanced keeps the plans of one state, for slots that hold the same. Breaks when
    it keeps a plan too long, or gives it to a slot that would have another one."""

    class Checked(Balanced):
        checks = 0

        def _plan(self, slot: filling.Slot) -> filling.TurnPlan:
            plan = super()._plan(slot)
            if not self.asks:
                return plan
            Checked.checks += 1
            occupancy = self.occupancy.copy()
            if self.chunk is not None:
                size = self.server.chunked_prefill_size
                assert size is not None
                rest = self.chunk.to_prefill - self.chunk.prefilled
                more = -(-rest // size) - 1
                occupancy[(slot.number + more) % len(occupancy)] += 1
            assert plan == plan_turn(
                occupancy,
                len(self.waiting),
                self.server.max_running_requests,
                self.server.filled_slots,
                self.cap,
            )
            return plan

        # Within a turn the queue gets shorter, and the plan stays.
        asks = True

        def _refuses(self, slot: filling.Slot, admitted: int, tokens: int) -> bool:
            self.asks = False
            refused = super()._refuses(slot, admitted, tokens)
            self.asks = True
            return refused

    rng = random.Random(5)
    for _ in range(40):
        stages = rng.randint(2, 6)
        server = Server(
            stages,
            rng.choice([0, 2]),
            rng.choice([4, 9, 32]),
            chunked_prefill_size=rng.choice([64, 8192]),
            target_slots=rng.choice([None, 2]),
        )
        load = closed_loop(rng.randint(1, 40), 80, 60, 15, seed=rng.randint(0, 999))
        profile = even_profile(stages, 3e-3, 1e-3)
        Engine(server, profile, load, Checked(server)).run()
    assert Checked.checks > 5_000


def test_a_latched_slot_stays_shut_in_stock_until_one_of_its_requests_leaves() -> None:
    """Rows run out, all slots latch; a request that ends in slot 0 opens slot 0 only.
    Breaks when stock's latch is cleared too early."""
    outputs = [5] + [200] * 7 + [10]
    load = Load("latch", [10] * 9, outputs, arrivals=[0.0] * 9)
    server = Server(4, max_running_requests=8, cap=2)
    outcome = simulate(
        server, even_profile(4, 5e-3, 0), load, "stock", keep_admissions=True
    )
    assert outcome.admissions is not None
    assert outcome.admissions[-1][1:] == (0, [8])


def test_a_chunk_goes_on_in_the_next_slots() -> None:
    """One prompt of 100 tokens, chunks of 40: slots 0, 1, 2; it decodes in the last.
    Breaks when a chunk waits a lap, or when its request stays in the first slot."""
    load = Load("chunks", [100], [3], arrivals=[0.0])
    server = Server(4, chunked_prefill_size=40)
    outcome = simulate(
        server, even_profile(4, 5e-3, 0), load, "stock", keep_admissions=True
    )
    assert outcome.admissions == [(0, 0, [0]), (1, 1, [0]), (2, 2, [0])]


def test_chunked_prompts_are_placed_where_they_land() -> None:
    """Prompts of two chunks decode one slot further on. Breaks when the rule asks the
    slot in which they start (largest above 4.6), or does not count a chunk."""
    server = Server(8, chunked_prefill_size=256)
    load = closed_loop(32, 200, 400, 100, shape="fixed", seed=2)
    assert simulate(server, PROFILE, load, "balanced").largest < 4.2


@pytest.mark.parametrize("chunk", [128, 256, 512, 1024])
def test_chunked_prompts_are_no_slower_than_stock(chunk: int) -> None:
    """On a ring with steep decodes, with rows to spare and without: 7 to 27 % faster.
    Breaks when the rule asks the slot in which a prompt starts, and, with 64
    clients, when it overfills slots because no start lands well."""
    profile = even_profile(8, 20e-3, 5e-3)
    server = Server(8, max_running_requests=64, chunked_prefill_size=chunk)
    for clients in (32, 64):
        load = closed_loop(clients, 200, 2000, 200, seed=1)
        stock, ours = (
            simulate(server, profile, load, policy).tok_s
            for policy in ("stock", "balanced")
        )
        assert ours > stock * 1.05


def test_no_prompt_is_lost_or_starved_in_small_rings() -> None:
    """Few rows, small caps, prompts of up to twelve chunks, fewer target slots than
    slots. Breaks when a prompt waits for a slot in which nothing starts."""
    rng = random.Random(8)
    for _ in range(150):
        stages = rng.randint(2, 5)
        server = Server(
            stages,
            rng.choice([0, 0, 2]),
            rng.choice([1, 2, 4, 9]),
            cap=rng.choice([None, 1, 2]),
            chunked_prefill_size=rng.choice([16, 64]),
            target_slots=rng.choice([None, 2]),
        )
        load = closed_loop(rng.randint(1, 12), 40, 100, 15, seed=rng.randint(0, 999))
        profile = even_profile(stages, 3e-3, 1e-3)
        outcome = simulate(server, profile, load, "balanced")
        assert all(request.end >= 0 for request in outcome.requests)


def test_pooled_policies_split_evenly() -> None:
    """Two bursts, the second into full slots. Breaks when decodes stay in theirs."""
    server = Server(4, max_running_requests=32)
    load = burst(12, 24, 0.4, 20, 60, shape="fixed", seed=1)
    for policy in ("td-pipe", "pooled", "gllm"):
        outcome = simulate(server, even_profile(4, 3e-3, 1e-3), load, policy)
        assert outcome.largest <= 6.5
