"""The plugin in real servers of other releases, on the CPU: outputs and slots.

    pytest -m releases tests/contract        # about three minutes a release

Each release lies over the one environment (``tools/overlays.py``). Every token is
recomputed from the prompt alone, so nothing is compared with a server that could be
wrong in the same way. What a release showed is left in the cache, where
``tools/release_matrix.py`` reads it.
"""

import importlib.metadata
import json
import platform
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from conftest import NEWEST
from packaging.version import Version

from sglang_ppfix import __version__
from sglang_ppfix.doctor import State, live
from sglang_ppfix.lab.client import run_load
from sglang_ppfix.lab.config import LabConfig
from sglang_ppfix.lab.load import Lengths, plan_load
from sglang_ppfix.lab.oracle import expected_tokens
from sglang_ppfix.lab.profile_file import stage_profile
from sglang_ppfix.lab.server import LabServer
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


class Run:
    """One server of one release, and what it showed."""

    def __init__(self, release: str, server: LabServer) -> None:
        self.release = release
        self.server = server
        self.shown: dict[str, object] = {}

    def record(self, folder: Path) -> None:
        """Keep what was shown, if every test of this release got that far."""
        if not {"outputs_right", "slots", "ranks_hooked"} <= self.shown.keys():
            return
        log = self.server.log()
        content = {
            "release": self.release,
            "plugin": __version__,
            "python": platform.python_version(),
            "torch": importlib.metadata.version("torch"),
            **self.shown,
            # Every rank logs them.
            "retractions": log.count("Retract requests.") // STAGES,
            "requeued": log.count("back to the queue instead of being aborted")
            // STAGES,
        }
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.release}.json"
        path.write_text(json.dumps(content, indent=1) + "\n")


@pytest.fixture(scope="module", params=RELEASES)
def run(request, tmp_path_factory):
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
        # Expect little of each request, so that too many are let in and KV runs out.
        extra_args=("--schedule-conservativeness", "0.1"),
        env={**environ, "SGLANG_PPFIX": "1", "SGLANG_PLUGINS": "ppfix,ppfix_lab"},
        start_timeout_s=600,
    )
    with LabServer(config, tmp_path_factory.mktemp(request.param)) as server:
        made = Run(request.param, server)
        yield made
        made.record(wheels.cache() / "releases")


def check(results):
    """Every answer is whole, and every token is the one that must come."""
    for result in results:
        wanted = result.request.output_tokens
        assert result.error is None, result.error
        expected = expected_tokens(result.request.prompt, wanted, STAGES)
        assert result.output == expected, result.request.rid


def test_the_release_is_the_one_asked_for(run):
    """Catches an overlay that loses against the environment: all would be one."""
    assert run.server.get("/server_info")["version"] == run.release
    assert f"hooked sglang {run.release}" in run.server.log()


def test_slots_are_even_and_outputs_right(run):
    """Catches stock's filling: eight requests at once would fill one slot of four."""
    run.server.wait_idle()
    load = plan_load("burst", 8, Lengths(5, 12), Lengths(12, 12), 1, rid_prefix="even")
    check(run_load(run.server.url, load))
    for forwards in read_traces(run.server.trace_dir):
        held = defaultdict(set)
        for forward in forwards:
            if forward.mode == "decode":
                held[forward.slot].update(r for r in forward.rids if "even" in r)
        slots = [len(held[slot]) for slot in range(STAGES + DEPTH)]
        assert slots == [2, 2, 2, 2]
        run.shown["slots"] = slots


def test_chunks_mixed_lengths_and_little_memory(run):
    """Catches wrong rows or tokens when prompts come in chunks, slots fill and drain
    unevenly, and KV runs out: prompts reach three chunks, and the requests that may
    run need more than there is."""
    run.server.wait_idle()
    load = plan_load(
        *("closed", 24, Lengths(5, 90), Lengths(5, 50), 2),
        requests=48,
        rid_prefix="mixed",
    )
    results = run_load(run.server.url, load)
    check(results)
    run.server.check_alive()
    (forwards, *_) = read_traces(run.server.trace_dir)
    prefills = Counter(r for f in forwards if f.mode == "prefill" for r in f.rids)
    chunked = [rid for rid, times in prefills.items() if "mixed" in rid and times > 1]
    assert chunked
    run.shown["outputs_right"] = len(results)
    run.shown["chunked"] = len(chunked)


def test_every_rank_is_hooked(run):
    """Catches a rank that runs stock, and a doctor that cannot tell."""
    (found,) = live.server(run.server.url)
    assert found.state is State.OK, found.text
    run.shown["ranks_hooked"] = STAGES
