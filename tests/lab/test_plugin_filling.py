"""A ring of four slots and 30 rows: even slots, right outputs, one decision."""

import pytest
from helpers_plugin import (
    BALANCED,
    STOCK,
    admissions,
    most_at_once,
    plugin_config,
    ready,
    steady_sizes,
)

from sglang_ppfix.lab.trace import largest_micro_batch

RING = plugin_config(4, max_running_requests=30)


@pytest.fixture
def plugin(lab_server):
    """The ring of four, policy balanced."""
    return ready(lab_server, RING)


@pytest.mark.parametrize("clients", [3, 9, 16, 30])
def test_a_burst_fills_the_slots_evenly(plugin, clients) -> None:
    """Stock's share (the cap), a share of other slots, or a count that misses
    prefills in flight makes one slot larger; counted by the log and by the device."""
    results = plugin.run(plugin.load("burst", clients, "8", "14"))
    plugin.complete(results)
    sizes = steady_sizes(plugin.forwards())
    by_device = [sizes.get(slot, 0) for slot in range(4)]
    assert sum(by_device) == clients
    assert max(by_device) - min(by_device) <= 1
    lines = admissions(plugin.log())
    assert lines[-1]["slots"] == by_device
    assert lines[-1]["total"] == clients
    assert sum(line["new"] for line in lines) == clients


def test_mixed_lengths_give_the_same_tokens_and_never_a_large_slot(plugin) -> None:
    """Twelve clients and four slots: no slot may ever hold more than three, however
    requests come and go. A share over the wrong demand, or a latch that is not
    cleared, shows here; a rank that decides alone shows in the decision files."""
    load = plugin.load("closed", 12, "1-400", "1-80", requests=40)
    results = plugin.run(load)
    plugin.complete(results)
    forwards = plugin.forwards()
    assert largest_micro_batch(forwards) == 3
    lines = admissions(plugin.log())
    assert all(line["slot_req"] <= line["share"] for line in lines)
    plugin.decisions()


def test_every_row_is_used_and_the_queue_drains(plugin) -> None:
    """30 rows over four slots: stock's cap of 7 leaves two rows empty for ever."""
    results = plugin.run(plugin.load("burst", 70, "4", "1-12"))
    plugin.complete(results)
    assert most_at_once(plugin.forwards()) == 30
    assert largest_micro_batch(plugin.forwards()) == 8
    plugin.decisions()


def test_server_info_shows_the_derived_cap(plugin) -> None:
    """A cap set where SGLang does not read it would not be shown."""
    assert plugin.internal_state()["pp_max_micro_batch_size"] == 8
    assert plugin.switch(policy=STOCK)
    assert plugin.internal_state()["pp_max_micro_batch_size"] == 7
    assert plugin.switch(policy=BALANCED)
    assert plugin.internal_state()["pp_max_micro_batch_size"] == 8
    # A start-up line: the part of the log before this test's own.
    assert (
        "ppfix: pp_max_micro_batch_size=8 (max_running_requests=30 over 4 slots, "
        "rounded up); stock takes 7" in plugin.server.log()
    )
