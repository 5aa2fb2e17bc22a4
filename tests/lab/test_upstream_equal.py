"""Stock with the plugin and SGLang with the diffs: one server after the other.

The same bursts, each of which reaches the scheduler in one message, so that what a
server does with it depends on nothing but its decisions.
"""

import json

import pytest

pytest.importorskip("unidiff")

from sglang_ppfix.lab.client import run_load
from sglang_ppfix.lab.config import LabConfig
from sglang_ppfix.lab.load import Lengths, plan_load
from sglang_ppfix.lab.profile_file import stage_profile
from sglang_ppfix.lab.trace import read_traces
from sglang_ppfix.patches import PatchSetError
from sglang_ppfix.patches.folder import releases
from sglang_ppfix.patches.package import installed
from sglang_ppfix.patches.trial import patched

STAGES = 4
BURSTS = (3, 8, 13, 32)


@pytest.fixture(scope="module")
def tree():
    """The installed SGLang with its series applied, as an entry for the path."""
    try:
        package = installed()
        release = package.release()
    except PatchSetError as error:
        pytest.skip(str(error))
    if release not in releases():
        pytest.skip(f"no series for sglang {release}")
    with patched(package, release) as entry:
        yield entry


def config(**env):
    """A ring of four slots, chunks of 64 tokens, the given environment."""
    return LabConfig(
        stage_profile("30+5b", STAGES),
        max_running_requests=32,
        chunked_prefill_size=64,
        env=env,
    )


def observe(server):
    """What a server does with every burst, and how fast."""
    seen, rates = [], []
    for clients in BURSTS:
        server.wait_idle()
        name = f"burst{clients}-"
        load = plan_load(
            *("burst", clients, Lengths(5, 90), Lengths(8, 24), 7), rid_prefix=name
        )
        results = run_load(server.url, load)
        assert [r.error for r in results] == [None] * clients
        (forwards, *_) = read_traces(server.trace_dir)
        mine = [f for f in forwards if any(name in rid for rid in f.rids)]
        # The burst meets whichever slot is up; from there on all is decided.
        first = mine[0].slot
        batches = [((f.slot - first) % STAGES, f.mode, f.rids) for f in mine]
        seen.append((batches, [r.output for r in results]))
        tokens = sum(len(r.output) for r in results)
        rates.append(tokens / (max(r.finished for r in results) - results[0].sent))
    return seen, rates


def test_same_admissions_and_outputs(lab_server, tree, tmp_path_factory) -> None:
    """Catches any decision that plugin and diffs take differently in a real server:
    which requests a slot takes in, in which iteration, and what they put out."""
    plugin, plugin_rates = observe(lab_server(config(SGLANG_PPFIX="1")))
    diffs, diffs_rates = observe(
        lab_server(
            config(
                SGLANG_PPFIX="0",
                SGLANG_ENABLE_PP_BALANCED_FILLING="1",
                PYTHONPATH=str(tree),
            )
        )
    )
    for clients, ours, theirs in zip(BURSTS, plugin, diffs, strict=True):
        assert theirs == ours, f"burst of {clients}"
    # Throughput is for the reader: a busy machine may not fail a test.
    figures = {"bursts": BURSTS, "plugin": plugin_rates, "diffs": diffs_rates}
    path = tmp_path_factory.getbasetemp() / "equal.json"
    path.write_text(json.dumps(figures))
    print(f"tok/s (emulated stage time on CPU): {figures}")
