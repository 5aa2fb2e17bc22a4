"""Stock, plugin and diffs on real SGLang: the upstream tests, and random loads.

Each test names, in its docstring, the wrong change that it catches.
"""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("unidiff")
pytest.importorskip("torch")

from sglang_ppfix.patches import PatchSetError
from sglang_ppfix.patches.folder import releases
from sglang_ppfix.patches.package import installed
from sglang_ppfix.patches.trial import cpu_tests, patched, run, upstream_tests

REPLAY = Path(__file__).with_name("patches_replay.py")
TESTS = upstream_tests()
SEEDS = int(os.environ.get("REPLAY_SEEDS", "30"))


@pytest.fixture(scope="module")
def release():
    """The installed release, if it has a series."""
    try:
        found = installed().release()
    except PatchSetError as error:
        pytest.skip(str(error))
    if found not in releases():
        pytest.skip(f"no series for sglang {found}")
    return found


@pytest.fixture(scope="module")
def tree(release):
    """A copy of the installed SGLang with the series applied."""
    with patched(installed(), release) as entry:
        yield entry


@pytest.mark.parametrize("test", cpu_tests(TESTS), ids=lambda path: path.stem)
class TestUpstream:
    """The files that stand in SGLang's tree, where no GPU is needed."""

    def test_red_on_stock(self, test, release):
        """Catches a test that says nothing: it passes without the change."""
        outcome = run(test)
        assert set(outcome.failed) == set(outcome.tests)
        for reason in outcome.failed.values():
            assert reason.startswith("AssertionError"), reason

    def test_green_with_the_plugin(self, test, release):
        """Catches a plugin that does less than the diffs."""
        outcome = run(test, plugin=True)
        assert outcome.failed == {}
        assert outcome.tests

    def test_green_on_the_patched_tree(self, test, tree):
        """Catches diffs that apply and compile, and do not work."""
        outcome = run(test, tree)
        assert outcome.failed == {}
        assert outcome.sglang.startswith(str(tree))


def replay(count, **environment):
    """What SGLang's event loop did with random loads, by seed."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SGLANG_")}
    (test,) = (path for path in cpu_tests(TESTS) if "balanced_filling" in path.name)
    done = subprocess.run(
        [sys.executable, str(REPLAY), str(test), "0", str(count)],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def plugin(release):
    """Random loads with the plugin."""
    return replay(SEEDS, SGLANG_PPFIX="1")


@pytest.fixture(scope="module")
def diffs(tree):
    """The same with the diffs."""
    return replay(SEEDS, PYTHONPATH=str(tree), SGLANG_ENABLE_PP_BALANCED_FILLING="1")


def differing(ours, theirs):
    """Seeds with another batch, another iteration or another output."""
    pairs = zip(ours, theirs, strict=True)
    return [seed for seed, (one, other) in enumerate(pairs) if one != other]


def test_diffs_decide_as_the_plugin_does(plugin, diffs):
    """Catches any difference between plugin and diffs: same batches in the same
    iterations, same outputs, whatever the ring, chunks, priorities, KV, aborts."""
    runs = plugin["radix cache"]
    assert differing(runs, diffs["radix cache"]) == []
    # The loads reach what they are there for.
    assert sum(run["retracted"] for run in runs)
    assert sum(run["chunked"] for run in runs)
    assert not any(run["aborted"] for run in runs)


@pytest.mark.xfail(
    strict=True,
    reason="hooks/memory.py hands SGLang's KV simulation its states in another order "
    "where the radix cache is off and a request ignores EOS",
)
def test_diffs_decide_as_the_plugin_does_without_radix_cache(plugin, diffs):
    """Catches the same where SGLang simulates how KV is used up and freed."""
    assert differing(plugin["no radix cache"], diffs["no radix cache"]) == []


def test_no_prompt_is_passed_on_for_ever(plugin, diffs):
    """Catches slots that name each other until the request that runs has ended: in
    mixed batches each by decodes of its own, or where SGLang skips the prompt in the
    slot that they mean."""
    for late in (plugin["late"], diffs["late"]):
        # From slot 0 it lands in slot 1, which is empty.
        assert late["plain"] == 8
        # One token is left for a third chunk: from slot 1 it lands in slot 1.
        assert late["mixed"] == 9
        # Slot 1 passed it on twice, and takes it in its third turn.
        assert late["barred"] == 13


def test_a_cut_prompt_takes_no_place_where_it_starts(plugin, diffs):
    """Catches one that is counted in the slot of its first chunk for the rest of that
    turn, or twice."""
    assert plugin["cut"] == diffs["cut"] == ["cut", "small"]


def test_off_is_stock(tree):
    """Catches a diff that changes admission where nobody asked for it."""
    count = max(SEEDS // 4, 5)
    assert replay(count, PYTHONPATH=str(tree)) == replay(count)


def test_gpu_tests_are_registered_as_upstream_does():
    """Catches a file that SGLang's CI would not collect, or would refuse."""
    ci = pytest.importorskip("sglang.test.ci.ci_register")
    files = sorted(str(path) for path in (TESTS / "test").rglob("test_*.py"))
    found = {Path(entry.filename).name: entry for entry in ci.collect_tests(files)}
    assert len(found) == len(files)
    suites = {entry.effective_suite for entry in found.values()}
    assert suites == {
        "base-a-test-cpu",
        "base-b-test-2-gpu-large",
        "extra-b-test-4-gpu-h100",
    }
    assert all(entry.est_time < 500 for entry in found.values())


@pytest.mark.parametrize(
    "path", sorted((TESTS / "test").rglob("*.py")), ids=lambda path: path.stem
)
def test_upstream_files_know_nothing_of_us(path):
    """Catches an import of ours in a file that is to stand in SGLang's tree."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert not (node.module or "").startswith("sglang_ppfix")
        elif isinstance(node, ast.Import):
            assert not any(name.name.startswith("sglang_ppfix") for name in node.names)
