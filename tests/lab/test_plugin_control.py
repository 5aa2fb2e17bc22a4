"""What rank 0 decides alone, on every rank; metrics, as a scraper sees them.

Two stages of two tensor-parallel ranks each; stages are so short that the schedulers'
CPU bounds the lap, so that policy ``auto`` tries one slot.
"""

import json
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from helpers_plugin import AUTO, BALANCED, PluginServer, plugin_config
from prometheus_client.parser import text_string_to_metric_families

from sglang_ppfix.lab.profile_file import stage_profile

DASHBOARD = Path(__file__).parents[2] / "docs/grafana/sglang-ppfix.json"
CONFIG = replace(
    plugin_config(
        2,
        max_running_requests=16,
        env={
            "SGLANG_PPFIX_POLICY": "auto",
            # One entry a rank; the lab counts pipeline ranks only.
            "SGLANG_CPU_OMP_THREADS_BIND": "0|1|0|1",
        },
        extra_args=("--tp-size", "2", "--enable-metrics"),
        trace=False,
    ),
    profile=stage_profile("2", 2),
)


@pytest.fixture
def plugin(lab_server) -> PluginServer:
    """The server, idle, under policy auto."""
    plugin = PluginServer(lab_server(CONFIG))
    assert plugin.switch(policy=AUTO, slots=0)
    return plugin


def changes(decisions: list[str]) -> list[list]:
    """Lines of a change: iteration, policy, target slots."""
    return [line for text in decisions if len(line := json.loads(text)) == 3]


def test_a_choice_of_rank_0_reaches_every_rank_in_one_iteration(plugin) -> None:
    """Catches a message that a tensor-parallel follower or a later stage misses, takes
    an iteration later, or hands to SGLang's dispatch."""
    plugin.begin()
    chosen = []
    for number in range(12):
        load = plugin.load("burst", 8, "8", "120", seed=number)
        plugin.complete(plugin.run(load))
        # All four files are compared, byte by byte.
        lines = changes(plugin.decisions())
        chosen = [slots for _iteration, policy, slots in lines if policy == "auto"]
        if 1 in chosen:
            break
    assert 1 in chosen
    assert "ppfix auto, target slots: 2 -> 1, #req: 8, to try: " in plugin.server.log()


def test_a_change_by_a_user_reaches_every_rank(plugin) -> None:
    """Catches followers that keep the policy of before."""
    running = plugin.start(plugin.load("closed", 6, "8", "40", requests=24))
    for slots in (1, 2, 1, 2):
        assert plugin.switch(policy=BALANCED, slots=slots)
        time.sleep(0.3)
    plugin.complete(running.result())
    plugin.settle()
    last = [line[1:] for line in changes(plugin.decisions())][-4:]
    assert last == [["balanced", slots] for slots in (1, 2, 1, 2)]


def scrape(plugin: PluginServer) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Samples by name."""
    text = plugin.server.get("/metrics")
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_metrics_of_a_running_server(plugin) -> None:
    """Catches a series that every tensor-parallel rank exports once more, a panel that
    finds nothing, and stock's count of one slot."""
    assert plugin.switch(policy=BALANCED, slots=2)
    running = plugin.start(plugin.load("burst", 12, "8", "400"))
    deadline = time.monotonic() + 60
    # Values are brought up to date twice a second.
    totals, held = set(), set()
    while (totals, held) != ({12.0}, {6.0}) and time.monotonic() < deadline:
        seen = scrape(plugin)
        totals = {value for _labels, value in seen.get("sglang:num_running_reqs", ())}
        slots = seen.get("sglang_ppfix:slot_requests", [])
        held = {value for _labels, value in slots}
        time.sleep(0.2)
    assert (totals, held) == ({12.0}, {6.0})
    places = [(labels["pp_rank"], labels["slot"]) for labels, _value in slots]
    assert sorted(places) == [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")]
    plugin.complete(running.result())
    plugin.settle()
    seen = scrape(plugin)
    wanted = set(re.findall(r"sglang_ppfix:\w+", DASHBOARD.read_text()))
    # Nothing was deferred or requeued for want of anything: no series yet.
    assert wanted - seen.keys() <= {
        "sglang_ppfix:deferred_total",
        "sglang_ppfix:requeued_total",
    }
