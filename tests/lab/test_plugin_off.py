"""Off is stock: the same outputs, the same decisions, no word in the log."""

from dataclasses import replace

import pytest
from helpers_plugin import PluginServer, plugin_config, slot_sequence

CONFIG = plugin_config(2, max_running_requests=8, chunked_prefill_size=64)
ABSENT = replace(CONFIG, env={"SGLANG_PPFIX": "1", "SGLANG_PLUGINS": "ppfix_lab"})
OFF = replace(CONFIG, env={**CONFIG.env, "SGLANG_PPFIX": "0"})
ON = CONFIG

# One burst a load: its decisions do not depend on the clock.
BURSTS = ((5, "8", "12"), (8, "1-150", "1-20"), (21, "1-40", "1-20"))


def decisions(lab_server, config):
    """Outputs and, per rank, who ran in which slot, of every burst."""
    plugin = PluginServer(lab_server(config))
    found = []
    for number, (clients, prompt, output) in enumerate(BURSTS):
        load = plugin.load("burst", clients, prompt, output, seed=number)
        # Request ids are part of what is compared.
        requests = tuple(
            replace(request, rid=f"{number}-{i:02d}")
            for i, request in enumerate(load.requests)
        )
        results = plugin.run(replace(load, requests=requests))
        plugin.complete(results)
        ranks = [slot_sequence(plugin.forwards(rank)) for rank in range(2)]
        found.append(([result.output for result in results], ranks))
    return found, plugin.server.log(), plugin.internal_state()


@pytest.fixture(scope="module")
def lab_server_of_module(server_pool):
    """As ``lab_server``, for fixtures of a module."""
    return server_pool.get


@pytest.fixture(scope="module")
def stock(lab_server_of_module):
    """What SGLang does on a server that never loads the plugin."""
    return decisions(lab_server_of_module, ABSENT)


def test_off_decides_like_a_server_without_the_plugin(lab_server, stock) -> None:
    """A hook that acts while the flag is off would move requests to other slots."""
    found, log, state = decisions(lab_server, OFF)
    assert found == stock[0]
    assert "ppfix" not in state
    lines = [line for line in log.splitlines() if "ppfix" in line.lower()]
    stock_lines = [line for line in stock[1].splitlines() if "ppfix" in line.lower()]
    # The lab's own names stand in SGLang's arguments; nothing else may be said.
    assert len(lines) == len(stock_lines), lines
    assert not PluginServer(lab_server(OFF)).decision_dir.exists()


def test_the_comparison_sees_the_plugin(lab_server, stock) -> None:
    """The test above must be able to fail: on, the same bursts lie elsewhere."""
    found, _log, state = decisions(lab_server, ON)
    assert [outputs for outputs, _ranks in found] == [o for o, _ranks in stock[0]]
    assert [ranks for _outputs, ranks in found] != [ranks for _o, ranks in stock[0]]
    assert state["ppfix"]["policy"] == "balanced"
