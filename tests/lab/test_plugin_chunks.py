"""Chunked prompts among short ones, and requests that are aborted at every stage."""

import time
from dataclasses import replace

import pytest
from helpers_plugin import (
    BALANCED,
    STOCK,
    admissions,
    plugin_config,
    ready,
    rids,
    slot_sequence,
    steady_sizes,
)

from sglang_ppfix.lab.load import PlannedRequest

CHUNK = 64
RING = plugin_config(2, max_running_requests=6, chunked_prefill_size=CHUNK)
RING_OF_FOUR = plugin_config(4, max_running_requests=16, chunked_prefill_size=CHUNK)


@pytest.fixture
def plugin(lab_server):
    """Two slots, six rows, chunks of 64 tokens."""
    return ready(lab_server, RING)


def test_chunked_prompts_among_short_ones(plugin) -> None:
    """A chunk that is counted in two slots, in none for ever, or that waits for its
    slot's share breaks the outputs or hangs; a third slot's worth of it, the sizes."""
    short = plugin.load("closed", 6, "1-20", "1-30", requests=14)
    long = plugin.load("closed", 6, "100-400", "1-30", requests=14)
    mixed = zip(short.requests, long.requests, strict=True)
    results = plugin.run(
        replace(short, requests=tuple(request for pair in mixed for request in pair))
    )
    plugin.complete(results)
    assert max(forward.tokens for forward in plugin.forwards()) == CHUNK
    plugin.decisions()


def test_a_lone_long_prompt_is_never_slowed(plugin) -> None:
    """Same chunks, in the same turns, as stock: a share that holds a chunk back, or
    a token share that cuts it, adds forwards or skips turns."""
    sequences = []
    for policy in (STOCK, BALANCED):
        assert plugin.switch(policy=policy)
        load = plugin.load("burst", 1, "700", "5")
        load = replace(load, requests=(replace(load.requests[0], rid=f"lone{policy}"),))
        plugin.complete(plugin.run(load))
        sequences.append(
            [[*entry[:3]] for entry in slot_sequence(plugin.forwards())],
        )
    stock, balanced = sequences
    assert balanced == stock
    assert sum(mode == "prefill" for _slot, mode, _tokens in balanced) == 11


def abort_request(plugin, request: PlannedRequest) -> None:
    """Ask the server to abort."""
    plugin.server.post("/abort_request", {"rid": request.rid})


def test_abort_while_waiting_while_prefilling_and_while_decoding(plugin) -> None:
    """A request that leaves in a way the plugin does not see stays in its counts: the
    next burst would find no place, or the idle check a leak."""
    running = plugin.load("closed", 6, "8", "150")
    results = plugin.start(running)
    plugin.wait_for(lambda seen: len(rids(seen)) == 6)

    waiting = plugin.load("closed", 3, "8", "10")
    queued = plugin.start(waiting)
    deadline = time.monotonic() + 60
    while plugin.internal_state()["ppfix"]["queue_req"] < 3:
        assert time.monotonic() < deadline
    abort_request(plugin, waiting.requests[0])
    abort_request(plugin, running.requests[0])  # decoding
    ends = results.result() + queued.result()
    aborted = ends[0]

    long = plugin.load("closed", 1, "6000", "10")
    prefilling = plugin.start(long)
    rid = long.requests[0].rid
    plugin.wait_for(lambda seen: rid in rids(seen))
    abort_request(plugin, long.requests[0])
    ends += prefilling.result()
    plugin.settle()

    forwards = plugin.forwards()
    assert waiting.requests[0].rid not in rids(forwards)
    assert {f.mode for f in forwards if rid in f.rids} == {"prefill"}
    assert [result.finish for result in ends].count("abort") == 3
    assert 0 < len(aborted.output) < 150
    plugin.right(ends)
    plugin.complete([result for result in ends if result.finish != "abort"])

    # Every place is there again.
    after = plugin.run(plugin.load("burst", 6, "4", "20"))
    plugin.complete(after)
    assert plugin.internal_state()["ppfix"]["occupancy"] == [0, 0]
    plugin.decisions()


def test_clients_hang_up_in_mid_flight(plugin) -> None:
    """Disconnects at random moments, over chunked prompts and a queue."""
    load = plugin.load("closed", 12, "1-200", "1-60", requests=48, seed=7)
    requests = tuple(
        replace(
            request,
            abort_after_s=(number % 7) * 0.15 if number % 3 == 0 else None,
            abort="disconnect" if number % 2 else "abort_request",
        )
        for number, request in enumerate(load.requests)
    )
    results = plugin.run(replace(load, requests=requests))
    assert any(result.finish in ("disconnect", "abort") for result in results)
    plugin.right(results)
    plugin.complete([r for r in results if r.request.abort_after_s is None])
    assert plugin.internal_state()["ppfix"]["occupancy"] == [0, 0]
    plugin.decisions()


def test_two_waiting_for_one_slot_are_prefilled_in_one_forward(plugin) -> None:
    """The token share is over the slots that have room: over all of them, a slot that
    lost two requests would take one a lap, and stall its decodes twice."""
    load = plugin.load("burst", 4, "8", "60")
    # In a burst the first half goes to the first slot.
    requests = tuple(
        replace(request, output_tokens=6 if number < 2 else 60)
        for number, request in enumerate(load.requests)
    )
    results = plugin.start(replace(load, requests=requests))
    gone = {requests[0].rid, requests[1].rid}

    def first_slot_is_empty(seen):
        last = {rid: i for i, f in enumerate(seen) for rid in f.rids}
        return gone <= last.keys() and len(seen) - max(last[r] for r in gone) > 4

    plugin.wait_for(first_slot_is_empty)
    pair = plugin.load("burst", 2, "8", "6")
    pair_results = plugin.send(pair)
    plugin.complete(results.result() + pair_results)
    plugin.settle()
    two = {request.rid for request in pair.requests}
    prefills = [set(f.rids) for f in plugin.forwards() if f.mode == "prefill"]
    assert [found for found in prefills if found & two] == [two]


@pytest.fixture
def ring(lab_server):
    """Four slots, sixteen rows, chunks of 64 tokens."""
    return ready(lab_server, RING_OF_FOUR)


def landed(ring, clients, prompt, slots=4, seed=0):
    """Requests that each slot decodes once a burst has landed, and the outputs."""
    results = ring.run(ring.load("burst", clients, prompt, "60", seed=seed))
    ring.complete(results)
    sizes = steady_sizes(ring.forwards())
    assert sum(sizes.values()) == clients
    return [sizes.get(slot, 0) for slot in range(4)], [r.output for r in results]


@pytest.mark.parametrize(
    ("prompt", "worst"), [("100", 2), ("128", 4), ("250", 5), ("10-250", 2)]
)
def test_chunked_prompts_land_evenly(ring, prompt, worst) -> None:
    """Catches a rule that asks the slot in which a prompt starts, counts a chunk in
    progress there or in none, or is one turn off: some slot gets three of eight or
    more. Stock's outputs are the same, token by token; prompts of two whole chunks fill
    two of its slots, and those of four land in one, above its cap of four."""
    sizes, outputs = landed(ring, 8, prompt)
    assert sizes == [2, 2, 2, 2]
    line = admissions(ring.log())[-1]
    assert (line["slots"], line["total"]) == (sizes, 8)
    ring.decisions()

    assert ring.switch(policy=STOCK)
    stock, same = landed(ring, 8, prompt)
    assert same == outputs
    assert max(stock) >= worst


def test_nine_chunked_prompts_are_even_within_one(ring) -> None:
    """Catches a landing slot that is asked for a place which the rest has taken."""
    sizes, _outputs = landed(ring, 9, "70-250", seed=3)
    assert sorted(sizes) == [2, 2, 2, 3]


def test_chunked_prompts_land_in_target_slots(ring) -> None:
    """Two target slots of four. Catches a prompt that starts in a target slot and lands
    beyond them, and one that waits for a start slot that may not start it."""
    assert ring.switch(slots=2)
    sizes, _outputs = landed(ring, 6, "70-250", seed=1)
    assert sizes == [3, 3, 0, 0]
    ring.decisions()


def test_a_lone_chunked_prompt_starts_at_once(ring) -> None:
    """Catches a prompt on an idle ring that waits for a slot: one prefill a turn, from
    the first on, in the slots in which stock runs it."""
    sequences = []
    for policy in (STOCK, BALANCED):
        assert ring.switch(policy=policy)
        for prompt in ("100", "250", "300"):
            ring.complete(ring.run(ring.load("burst", 1, prompt, "3")))
            found = slot_sequence(ring.forwards())
            sequences.append((policy, [entry[:3] for entry in found]))
    stock = [found for policy, found in sequences if policy == STOCK]
    assert [found for policy, found in sequences if policy == BALANCED] == stock


@pytest.mark.parametrize("cap", [1, 2, 4])
def test_every_chunked_prompt_starts_in_the_end(ring, cap) -> None:
    """A full ring, and slots that start nothing at their cap. Catches a head of the
    queue that waits for ever for a slot from which it would land well."""
    assert ring.set_state({"pp_max_micro_batch_size": cap})
    load = ring.load("closed", 20, "10-250", "1-20", requests=40, seed=cap)
    ring.complete(ring.run(load))
    assert ring.internal_state()["ppfix"]["occupancy"] == [0] * 4
    ring.decisions()


def test_a_cached_prefix_is_not_prefilled(ring) -> None:
    """Prompts of four chunks, of which three and more are cached: none is cut. Catches
    a landing slot that is made from the prompt's length."""
    first = ring.load("burst", 1, "250", "200")
    running = ring.start(first)
    rid = first.requests[0].rid
    ring.wait_for(lambda seen: any(f.mode == "decode" and rid in f.rids for f in seen))
    ring.begin()
    load = ring.load("burst", 7, "10", "60")
    head = first.requests[0].prompt[:240]
    load = replace(
        load, requests=tuple(replace(r, prompt=head + r.prompt) for r in load.requests)
    )
    results = ring.send(load)
    ring.complete(results + running.result())
    ring.settle()
    prefills = [f for f in ring.forwards() if f.mode == "prefill"]
    assert sum(f.tokens for f in prefills) <= 7 * 20
    assert [line["slots"] for line in admissions(ring.log())][-1] == [2, 2, 2, 2]
