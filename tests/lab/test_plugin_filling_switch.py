"""The switch on a running server, and the totals that it must not change."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers_plugin import BALANCED, OBSERVE, STOCK, ready
from test_plugin_filling import RING

from sglang_ppfix.lab.trace import Forward

SWITCHES = 200


@pytest.fixture
def plugin(lab_server):
    """The ring of four, policy balanced."""
    return ready(lab_server, RING)


def test_200_switches_under_load(plugin) -> None:
    """A rank that applies a change in another iteration admits other requests than
    its neighbours: outputs, decision files and digests differ, or the ring hangs."""
    rng = random.Random(3)
    refused = []

    def switch() -> None:
        for _ in range(SWITCHES):
            change = {
                "policy": rng.choice([STOCK, OBSERVE, BALANCED, BALANCED]),
                "slots": rng.randint(0, 4),
            }
            if not plugin.switch(**change):
                refused.append(change)
            time.sleep(rng.random() * 0.05)

    with ThreadPoolExecutor(1) as threads:
        switching = threads.submit(switch)
        loads = 0
        while not switching.done():
            load = plugin.load("closed", 12, "1-60", "1-25", requests=24, seed=loads)
            plugin.complete(plugin.send(load))
            loads += 1
        switching.result()
    assert not refused
    assert plugin.switch(policy=BALANCED, slots=0)
    plugin.settle()
    # Long enough for a report of every rank to come around after the last admission.
    plugin.complete(plugin.run(plugin.load("closed", 1, "8", "80")))
    state = plugin.internal_state()["ppfix"]
    assert len(state["ranks"]) == 4
    digests = {report["digest"] for report in state["ranks"]}
    assert digests == {state["digest"]}
    changes = [line for line in plugin.decisions() if '"balanced"' in line]
    assert len(changes) > SWITCHES / 4


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"ppfix_policy": 9}, "ppfix_policy=9"),
        ({"ppfix_policy": 0.5}, "ppfix_policy=0.5"),
        ({"ppfix_slots": 5}, "ppfix_slots=5"),
        ({"ppfix_slots": -1}, "ppfix_slots=-1"),
        ({"ppfix_slot": 2}, "'ppfix_slot' is no key"),
        ({"ppfix_policy": 0, "ppfix_slots": 5}, "ppfix_slots=5"),
        ({"ppfix_policy": 0, "pp_max_micro_batch_size": 0}, None),
    ],
)
def test_a_bad_value_is_refused_and_nothing_changes(plugin, values, named) -> None:
    """Half a change, or one on some ranks only, would split the ring."""
    before = plugin.internal_state()
    assert not plugin.set_state(values)
    after = plugin.internal_state()
    assert after["ppfix"]["policy"] == before["ppfix"]["policy"] == "balanced"
    assert after["pp_max_micro_batch_size"] == before["pp_max_micro_batch_size"]
    assert after["ppfix"]["last_change"] == before["ppfix"]["last_change"]
    if named is not None:
        assert named in after["ppfix"]["refused"]
        assert "ppfix: refused: " in plugin.log()
    plugin.complete(plugin.run(plugin.load("burst", 4, "8", "4")))


@pytest.mark.parametrize("policy", [BALANCED, OBSERVE, STOCK])
def test_loads_count_every_slot_at_every_moment(plugin, policy) -> None:
    """Stock's own answer is one slot's, whichever is in turn: 8, 8, 0, 0, ..."""
    assert plugin.switch(policy=policy)
    load = plugin.load("burst", 16, "8", "90")
    results = plugin.start(load)
    while len(decoding(plugin.forwards())) < 16:
        plugin.server.check_alive()
        time.sleep(0.05)
    seen = []
    for _ in range(40):
        (one,) = plugin.server.get("/v1/loads")["loads"]
        seen.append((time.monotonic(), one["num_running_reqs"]))
    plugin.complete(results.result())
    plugin.settle()
    # A request is gone after its last forward; 90 tokens outlast the questions.
    first_end = min(decoding(plugin.forwards(rank=0)).values())
    inside = [count for moment, count in seen if moment < first_end]
    assert len(inside) >= 10
    assert set(inside) == {16}


def decoding(forwards: list[Forward]) -> dict[str, float]:
    """When each request that has decoded began its last forward (rank 0)."""
    return {
        rid: forward.start
        for forward in forwards
        if forward.mode == "decode"
        for rid in forward.rids
    }
