"""A KV pool so short that requests are retracted all the time: none may be lost.

More than 500 requests go through it. The load of the design: four stages, 900 KV
tokens, 24 clients, 93 tokens a request.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from helpers_plugin import BALANCED, STOCK, plugin_config, ready, rids

# A low estimate of what requests will need, low again soon after a retraction: more
# are let in than fit.
SHORT = plugin_config(
    4,
    kv_tokens=900,
    env={"SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS": "10"},
    extra_args=("--schedule-conservativeness", "0.1"),
)
# Without the prefix cache SGLang admits by other code; every 23rd forward it retracts
# requests for the sake of it.
NO_CACHE = plugin_config(
    2,
    kv_tokens=500,
    env={"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "23"},
    extra_args=("--disable-radix-cache",),
)
CLIENTS = 24
FIXED: Mapping[str, Any] = {"temperature": 0}
ESTIMATED: Mapping[str, Any] = {"temperature": 0, "ignore_eos": False}
"""Without ``ignore_eos`` SGLang reserves a fraction of ``max_new_tokens``."""

RETRACTION = "KV cache pool is full. Retract requests"
REQUEUED = "goes back to the queue instead of being aborted"


def test_fixed_lengths_are_never_retracted(lab_server) -> None:
    """Every request's tokens are known, and counted over all slots before the next is
    let in; over one slot, as in stock, too many are."""
    plugin = ready(lab_server, SHORT)
    load = plugin.load("closed", CLIENTS, "73", "20", requests=100, sampling=FIXED)
    plugin.complete(plugin.run(load))
    assert RETRACTION not in plugin.log()
    plugin.decisions()


@pytest.mark.parametrize(
    ("prompt", "output", "requests"), [("73", "20", 320), ("33", "60", 140)]
)
def test_no_request_is_lost_when_too_many_are_let_in(
    lab_server, prompt, output, requests
) -> None:
    """Stock loses one in a hundred here: a slot's last request is aborted (HTTP 500)
    while other slots hold KV. A requeued request that lost a token would show."""
    plugin = ready(lab_server, SHORT)
    load = plugin.load(
        "closed", CLIENTS, prompt, output, requests=requests, sampling=ESTIMATED
    )
    plugin.complete(plugin.run(load))
    assert RETRACTION in plugin.log()
    assert plugin.internal_state()["ppfix"]["occupancy"] == [0] * 4
    plugin.decisions()


def test_lone_requests_go_back_to_the_queue(lab_server) -> None:
    """Requests so large that slots hold one each: stock would abort one after the
    other, and a requeue that brings the same one back at once would never end."""
    plugin = ready(lab_server, SHORT)
    before = plugin.internal_state()["ppfix"]["requeued"]
    load = plugin.load("closed", CLIENTS, "100", "86", requests=48, sampling=ESTIMATED)
    plugin.complete(plugin.run(load))
    assert REQUEUED in plugin.log()
    assert plugin.internal_state()["ppfix"]["requeued"] > before
    plugin.decisions()


def test_over_admission_by_stock_is_survived(lab_server) -> None:
    """Switched on in mid-load, the plugin finds more requests than KV can hold."""
    plugin = ready(lab_server, SHORT)
    assert plugin.switch(policy=STOCK)
    plugin.begin()
    load = plugin.load("burst", CLIENTS, "28", "65", sampling=ESTIMATED)
    results = plugin.start(load)
    plugin.wait_for(lambda seen: len(rids(seen)) >= 16)
    assert plugin.switch(policy=BALANCED)
    plugin.complete(results.result())
    plugin.settle()
    assert RETRACTION in plugin.log()
    plugin.decisions()


def test_a_slot_that_ran_out_of_kv_is_opened_again(lab_server) -> None:
    """Requests of other slots end and free KV. Stock opens a slot again only when one
    of its own requests ends: two of four slots would keep one request each."""
    plugin = ready(lab_server, SHORT)
    plugin.begin()
    lengths = ((8, 150), (290, 30), (290, 30), (8, 85))  # one a slot: 891 tokens
    first = plugin.load("burst", 4, "300", "1", sampling=FIXED)
    requests = tuple(
        replace(request, prompt=request.prompt[:prompt], output_tokens=output)
        for request, (prompt, output) in zip(first.requests, lengths, strict=True)
    )
    running = plugin.start(replace(first, requests=requests))
    plugin.wait_for(lambda seen: len(rids(seen)) == 4)
    results = plugin.send(plugin.load("burst", 6, "60", "40", sampling=FIXED))
    plugin.complete(results + running.result())
    plugin.settle()
    decodes = [f for f in plugin.forwards() if f.mode == "decode"]
    largest = [max(f.requests for f in decodes if f.slot == slot) for slot in range(4)]
    assert largest == [2, 2, 2, 2]


def test_without_prefix_cache_and_with_forced_retraction(lab_server) -> None:
    """Another method admits then, and every 23rd forward retracts: catches a budget
    that forgets the requests of other slots, and a retracted request that is lost."""
    plugin = ready(lab_server, NO_CACHE)
    load = plugin.load("closed", CLIENTS, "33", "60", requests=72, sampling=FIXED)
    plugin.complete(plugin.run(load))
    assert "Testing retraction" in plugin.log()
    assert RETRACTION not in plugin.log()
    plugin.decisions()
