"""The plugin in real servers of other releases, on the CPU: outputs and slots.

    pytest -m releases tests/contract        # about three minutes a release

Each release lies over the one environment (``tools/overlays.py``). Every token is
recomputed from the prompt alone, so nothing is compared with a server that could be
wrong in the same way.
"""

import importlib.metadata
import sys
from collections import defaultdict

import pytest
from conftest import NEWEST
from packaging.version import Version

from sglang_ppfix.doctor import State, live
from sglang_ppfix.lab.client import run_load
from sglang_ppfix.lab.config import LabConfig
from sglang_ppfix.lab.load import Lengths, plan_load
from sglang_ppfix.lab.oracle import expected_tokens
from sglang_ppfix.lab.server import LabServer
from sglang_ppfix.lab.stage_time import stage_profile
from sglang_ppfix.lab.trace import read_traces

pytestmark = [pytest.mark.lab, pytest.mark.releases]

STAGES, DEPTH, CHUNK = 2, 2, 32
RELEASES = (
    "0.5.11",
    "0.5.13.post1",
    "0.5.15.post1",
    "0.5.17",
    "0.5.19",
    "0.5.21",
    "0.5.23",
)


@pytest.fixture(scope="module", params=RELEASES)
def server(request, tmp_path_factory):
    """A server of one release with the plugin: two stages, four slots."""
    import overlays
    import wheels

    try:
        base = importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"sglang is not installed for {sys.executable}")
    if base != str(NEWEST):
        pytest.skip(f"sglang {base} is installed, not {NEWEST}")
    try:
        environ = overlays.environment(Version(request.param))
    except wheels.Offline as error:
        pytest.skip(str(error))
    config = LabConfig(
        stage_profile("30+5b", STAGES),
        max_running_requests=16,
        async_depth=DEPTH,
        chunked_prefill_size=CHUNK,
        kv_tokens=800,
        env={**environ, "SGLANG_PPFIX": "1", "SGLANG_PLUGINS": "ppfix,ppfix_lab"},
        start_timeout_s=600,
    )
    with LabServer(config, tmp_path_factory.mktemp(request.param)) as server:
        yield request.param, server


def check(results):
    """Every answer is whole, and every token is the one that must come."""
    for result in results:
        wanted = result.request.output_tokens
        assert result.error is None, result.error
        expected = expected_tokens(result.request.prompt, wanted, STAGES)
        assert result.output == expected, result.request.rid


def test_the_release_is_the_one_asked_for(server):
    """Catches an overlay that loses against the environment: all would be one."""
    release, running = server
    assert running.get("/server_info")["version"] == release
    assert f"hooked sglang {release}" in running.log()


def test_slots_are_even_and_outputs_right(server):
    """Catches stock's filling: eight requests at once would fill one slot of four."""
    _release, running = server
    running.wait_idle()
    load = plan_load("burst", 8, Lengths(5, 12), Lengths(12, 12), 1, rid_prefix="even")
    check(run_load(running.url, load))
    for forwards in read_traces(running.trace_dir):
        held = defaultdict(set)
        for forward in forwards:
            if forward.mode == "decode":
                held[forward.slot].update(r for r in forward.rids if "even" in r)
        assert [len(held[slot]) for slot in range(STAGES + DEPTH)] == [2, 2, 2, 2]


def test_chunks_mixed_lengths_and_little_memory(server):
    """Catches wrong rows or tokens when prompts come in chunks, slots fill and drain
    unevenly, and KV runs out: prompts reach three chunks, and the requests that may
    run need more than twice the KV that there is."""
    _release, running = server
    running.wait_idle()
    load = plan_load(
        *("closed", 24, Lengths(5, 90), Lengths(5, 50), 2),
        requests=48,
        rid_prefix="mixed",
    )
    results = run_load(running.url, load)
    check(results)
    assert len(results) == 48
    running.check_alive()


def test_every_rank_is_hooked(server):
    """Catches a rank that runs stock, and a doctor that cannot tell."""
    _release, running = server
    (found,) = live.server(running.url)
    assert found.state is State.OK, found.text
