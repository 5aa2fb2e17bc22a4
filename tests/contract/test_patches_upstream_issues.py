"""What ``docs/upstream-issues.md`` says of stock SGLang is so, in the newest release.

Each test fails when SGLang fixes what it shows: then the page has to say since when.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from conftest import NEWEST, tree_of

from sglang_ppfix.patches import PatchSetError
from sglang_ppfix.patches.package import installed
from sglang_ppfix.patches.trial import cpu_tests, upstream_tests

SHOW = Path(__file__).with_name("patches_issues.py")


@pytest.fixture(scope="module")
def shown():
    """What stock SGLang did."""
    try:
        release = installed().release()
    except PatchSetError as error:
        pytest.skip(str(error))
    if release != NEWEST:
        pytest.skip(f"sglang {release} is installed, not {NEWEST}")
    (test,) = (p for p in cpu_tests(upstream_tests()) if "balanced_filling" in p.name)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SGLANG_")}
    done = subprocess.run(
        [sys.executable, str(SHOW), str(test)],
        env=clean,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_penalties_are_forgotten_by_a_retraction(shown):
    """Ten tokens were put out and penalised ten times; then only the new ones are."""
    penalties = shown["penalties"]
    assert penalties["put_out"] == penalties["before"] == 10
    assert penalties["after"] < penalties["before"]


def test_the_kv_simulation_is_not_sorted(shown):
    """The request with the most tokens left is put before the last one."""
    states = shown["simulated_states"]
    assert sorted(states) != states


def test_the_range_of_set_internal_state(shown):
    """No value that gives every row a place, and none at all below one row a slot."""
    assert max(shown["caps_60_over_8"]) == 7
    assert shown["caps_3_over_4"] == []


def test_the_cap_counts_without_a_pipeline(shown):
    """``--pp-max-micro-batch-size 1`` with ``--pp-size 1`` takes one request a turn."""
    assert shown["allocatable_without_pipeline"] == 1


def test_prefill_decode_interval_counts_slots(shown):
    """Four rounds were asked for; each of four slots waits one."""
    assert shown["deferred_rounds"] == [1, 1, 1, 1]


def test_one_slot_is_printed_for_ever():
    """A decode line comes every 40th micro-batch, whatever slot that is: the counter
    is the rank's."""
    reporter = "sglang.srt.managers.scheduler_components.metrics_reporter"
    text = tree_of(NEWEST).text(reporter)
    assert text is not None
    assert b"forward_ct_decode % self.decode_log_interval != 0" in text
    printed = {k: {40 * line % k for line in range(k)} for k in range(2, 12)}
    assert [k for k in printed if len(printed[k]) == 1] == [2, 4, 5, 8, 10]
