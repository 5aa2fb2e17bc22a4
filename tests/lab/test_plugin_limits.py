"""Few rows, a given cap, and more slots than stages."""

import pytest
from helpers_plugin import (
    BALANCED,
    PluginServer,
    most_at_once,
    plugin_config,
    steady_sizes,
)

from sglang_ppfix.lab.trace import largest_micro_batch, slots_filled

ONE_ROW = plugin_config(2, max_running_requests=1)
FEW_ROWS = plugin_config(3, max_running_requests=2)
CAP = plugin_config(2, max_running_requests=12, cap=2)
DEEP = plugin_config(4, max_running_requests=24, async_depth=2)


def ready(lab_server, config) -> PluginServer:
    """A server that fills evenly."""
    plugin = PluginServer(lab_server(config))
    assert plugin.switch(policy=BALANCED, slots=0)
    return plugin


def test_one_row(lab_server) -> None:
    """A share of 0, or a cap of 0, would let nobody in; two at once, too many."""
    plugin = ready(lab_server, ONE_ROW)
    results = plugin.run(plugin.load("burst", 8, "1-30", "1-15"))
    plugin.complete(results)
    assert most_at_once(plugin.forwards()) == 1
    assert warns_of_rows(plugin.server.log(), rows=1, slots=2)
    plugin.decisions()


def test_fewer_rows_than_slots(lab_server) -> None:
    """Each request gets a slot of its own, and the user hears that a slot is idle."""
    plugin = ready(lab_server, FEW_ROWS)
    results = plugin.run(plugin.load("burst", 9, "1-30", "1-15"))
    plugin.complete(results)
    assert most_at_once(plugin.forwards()) == 2
    assert largest_micro_batch(plugin.forwards()) == 1
    assert warns_of_rows(plugin.server.log(), rows=2, slots=3)
    plugin.decisions()


def warns_of_rows(log: str, rows: int, slots: int) -> bool:
    """Whether the start said that rows are fewer than slots."""
    return (
        f"ppfix: max_running_requests={rows} is smaller than the {slots} slots" in log
    )


def test_a_given_cap_is_obeyed_at_every_forward(lab_server) -> None:
    """Twelve rows over two slots would derive 6; the user said 2."""
    plugin = ready(lab_server, CAP)
    results = plugin.run(plugin.load("closed", 12, "1-30", "1-25", requests=30))
    plugin.complete(results)
    forwards = plugin.forwards()
    assert max(forward.requests for forward in forwards) == 2
    assert most_at_once(forwards) == 4
    assert plugin.internal_state()["pp_max_micro_batch_size"] == 2
    # Given stays given, also when the policy goes and comes back.
    assert plugin.switch(policy=0)
    assert plugin.switch(policy=BALANCED)
    assert plugin.internal_state()["pp_max_micro_batch_size"] == 2
    plugin.decisions()


@pytest.mark.parametrize(("clients", "each"), [(6, {1}), (14, {2, 3}), (24, {4})])
def test_async_depth_two_fills_six_slots(lab_server, clients, each) -> None:
    """Over pp_size slots the last two would stay empty, as they do in stock."""
    plugin = ready(lab_server, DEEP)
    results = plugin.run(plugin.load("burst", clients, "8", "14"))
    plugin.complete(results)
    forwards = plugin.forwards()
    sizes = steady_sizes(forwards)
    assert set(sizes) == set(range(6))
    assert sum(sizes.values()) == clients
    assert set(sizes.values()) == each
    assert set(slots_filled(forwards)) == set(range(6))
    plugin.decisions()


def test_a_cap_that_is_set_later_is_obeyed(lab_server) -> None:
    """After ``/set_internal_state`` the derived cap (4) must not come back."""
    plugin = ready(lab_server, DEEP)
    assert plugin.internal_state()["pp_max_micro_batch_size"] == 4
    assert plugin.set_state({"pp_max_micro_batch_size": 3})
    assert plugin.switch(policy=BALANCED)
    results = plugin.run(plugin.load("burst", 24, "8", "10"))
    plugin.complete(results)
    assert largest_micro_batch(plugin.forwards()) == 3
    assert plugin.internal_state()["pp_max_micro_batch_size"] == 3
    plugin.decisions()
