"""The patched trees in real servers, on the CPU, without the plugin.

    pytest -m releases tests/contract/test_patches_lab.py    # minutes a release

As ``test_release_lab.py`` does with the plugin: slots even, every token the one that
must come, whatever the chunks and however little KV there is.
"""

import importlib.metadata
import os
import re
from collections import Counter
from pathlib import Path

import pytest
from conftest import NEWEST
from packaging.version import Version
from test_release_lab import CHUNK, DEPTH, RELEASES, STAGES

pytest.importorskip("unidiff")

from sglang_ppfix.lab.client import run_load
from sglang_ppfix.lab.config import LabConfig
from sglang_ppfix.lab.load import Lengths, plan_load
from sglang_ppfix.lab.oracle import expected_tokens
from sglang_ppfix.lab.profile_file import stage_profile
from sglang_ppfix.lab.server import LabServer
from sglang_ppfix.lab.trace import read_traces
from sglang_ppfix.patches.installed import apply, copy_of
from sglang_ppfix.patches.package import Package, installed

pytestmark = [pytest.mark.lab, pytest.mark.releases]


@pytest.fixture(scope="module", params=RELEASES)
def server(request, tmp_path_factory):
    """A server of one release with the diffs: two stages, four slots."""
    import overlays
    import wheels

    release = Version(request.param)
    try:
        base = importlib.metadata.version("sglang")
        environ = overlays.environment(release)
    except (importlib.metadata.PackageNotFoundError, wheels.Offline) as error:
        pytest.skip(str(error))
    if base != str(NEWEST):
        pytest.skip(f"sglang {base} is installed, not {NEWEST}")
    entries = [Path(p) for p in environ["PYTHONPATH"].split(os.pathsep) if p]
    (overlay, *_) = [e for e in entries if (e / "sglang").is_dir()] or [None]
    package = installed() if overlay is None else Package(overlay / "sglang")
    tree = tmp_path_factory.mktemp("patched")
    apply(copy_of(package, tree), release)
    config = LabConfig(
        stage_profile("30+5b", STAGES),
        max_running_requests=16,
        async_depth=DEPTH,
        chunked_prefill_size=CHUNK,
        kv_tokens=800,
        # Expect little of each request, so that too many are let in and KV runs out.
        extra_args=("--schedule-conservativeness", "0.1"),
        env={
            **environ,
            "PYTHONPATH": os.pathsep.join(map(str, [tree, *entries])),
            "SGLANG_PLUGINS": "ppfix_lab",
            "SGLANG_PPFIX": "0",
            "SGLANG_ENABLE_PP_BALANCED_FILLING": "1",
        },
        start_timeout_s=600,
    )
    with LabServer(config, tmp_path_factory.mktemp(request.param)) as running:
        yield running


def check(results):
    """Every answer is whole, and every token is the one that must come."""
    for result in results:
        wanted = result.request.output_tokens
        assert result.error is None, result.error
        expected = expected_tokens(result.request.prompt, wanted, STAGES)
        assert result.output == expected, result.request.rid


def test_slots_are_even_and_outputs_right(server):
    """Catches a variable that is not read, and diffs that fill as stock does."""
    server.wait_idle()
    load = plan_load("burst", 8, Lengths(5, 12), Lengths(12, 12), 1, rid_prefix="even")
    check(run_load(server.url, load))
    for forwards in read_traces(server.trace_dir):
        held = Counter(
            slot
            for rid, slot in {
                (rid, forward.slot)
                for forward in forwards
                if forward.mode == "decode"
                for rid in forward.rids
                if "even" in rid
            }
        )
        assert [held[slot] for slot in range(STAGES + DEPTH)] == [2, 2, 2, 2]


def test_the_log_shows_every_slot(server):
    """Catches a log line that counts one slot, or a request twice."""
    shown = re.findall(r"#total-req: (\d+), #slots: ([\d/]+), ", server.log())
    assert shown
    for total, slots in shown:
        held = sum(map(int, slots.split("/")))
        # A chunked prefill in progress is in no slot yet.
        assert int(total) - held in (0, 1)
    assert ("8", "2/2/2/2") in shown
    assert "ppfix admission" not in server.log()


def test_chunks_mixed_lengths_and_little_memory(server):
    """Catches wrong rows or tokens when prompts come in chunks, slots fill and drain
    unevenly, and KV runs out; and a request that is aborted for that."""
    server.wait_idle()
    load = plan_load(
        *("closed", 24, Lengths(5, 90), Lengths(5, 50), 2),
        requests=48,
        rid_prefix="mixed",
    )
    check(run_load(server.url, load))
    server.check_alive()
    (forwards, *_) = read_traces(server.trace_dir)
    prefills = Counter(r for f in forwards if f.mode == "prefill" for r in f.rids)
    assert [rid for rid, times in prefills.items() if "mixed" in rid and times > 1]
