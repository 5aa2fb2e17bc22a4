"""Every tested release against what the plugin relies on, read from its wheel.

A release that drifts fails with the name of what drifted. Imports nothing of SGLang.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import wheels
from conftest import NEWEST, RELEASES, Recording, tree_of
from packaging.version import Version

from sglang_ppfix.compat import parameters
from sglang_ppfix.compat.contract import BODIES, POLICY, SCHEDULER
from sglang_ppfix.compat.drift import is_untouched, search
from sglang_ppfix.compat.known import known
from sglang_ppfix.compat.release import is_supported, supported_range
from sglang_ppfix.compat.source import parameters_of
from sglang_ppfix.compat.upstream import PROBES, fixed_upstream
from sglang_ppfix.doctor.targets import hooks_of

ROOT = Path(__file__).parents[2]


def test_nothing_drifted(release, tree):
    """Catches a target, parameter, body, attribute or call that this release lacks."""
    assert [str(drift) for drift in search(tree, hooks_of(release), release)] == []


def test_not_fixed_upstream(tree):
    """Catches a probe that takes stock for fixed, or a release that needs no plugin."""
    assert list(fixed_upstream(tree)) == []


@pytest.mark.parametrize(
    "folder", sorted((ROOT / "patches").glob("sglang-*")), ids=lambda path: path.name
)
def test_our_diffs_are_recognised(folder):
    """Catches probes and diffs that part: a patched SGLang would be patched twice."""
    # A series may name the mails of another release that has the same ones.
    mails = [folder / line for line in (folder / "series").read_text().split()]
    assert [f"{probe.change}.patch" for probe in PROBES] == [m.name for m in mails]
    for probe, mail in zip(PROBES, mails, strict=True):
        text = mail.read_text()
        owner, method = probe.qualname.split(".")
        assert re.search(rf"^\+    def {method}\(", text, re.MULTILINE), probe
        assert f"class {owner}" in text, probe
        assert f"+++ b/{probe.module.replace('.', '/')}.py" in text, probe


def test_the_newest_release_of_all():
    """Catches a release that appeared since: run ``tools/known_bodies.py show``."""
    try:
        newest = wheels.newest()
    except wheels.Offline as error:
        pytest.skip(str(error))
    if known().is_tested(newest):
        return
    found = search(tree_of(newest), hooks_of(newest), newest)
    assert [f"sglang {newest}: {drift}" for drift in found] == []


def test_the_range_is_what_was_tested():
    """Catches a range that promises more than was tested, or less."""
    assert all(map(is_supported, RELEASES))
    (low,) = (s for s in supported_range() if s.operator == ">=")
    (high,) = (s for s in supported_range() if s.operator == "<")
    assert Version(low.version) == RELEASES[0]
    # Post releases of the newest are let in; their bodies decide.
    next_patch = (*NEWEST.release[:2], NEWEST.release[2] + 1)
    assert Version(high.version).release == next_patch


def test_every_known_parameter_list_exists():
    """Catches a list that no release has: it would let drift through."""
    seen = {}
    for release in RELEASES:
        tree = tree_of(release)
        for hook in hooks_of(release):
            found = parameters_of(tree.find(hook.module, hook.qualname).node)
            seen.setdefault(hook.target, set()).add(found)
    for hook in hooks_of(NEWEST):
        assert set(hook.parameters) == seen[hook.target], hook.target


@pytest.mark.parametrize("name", sorted(parameters.SINCE))
def test_methods_that_came_later(name):
    """Catches a hook that is left out where its target exists."""
    (hook,) = (hook for hook in hooks_of(NEWEST) if hook.qualname == name)
    first = parameters.SINCE[name]
    has = {r: tree_of(r).find(hook.module, name) is not None for r in RELEASES}
    assert has == {r: r >= first for r in RELEASES}


def test_every_body_is_known(release):
    """Catches a body that was put on the list without reading every release's."""
    for body in BODIES:
        prints = known().bodies[body.target].values()
        assert sum(str(release) in releases for releases in prints) == 1, body.target


def test_every_file_of_a_verdict_is_known(release, tree):
    """Catches a verdict by digests that misses a file: a change in it would go unseen.
    Run ``tools/known_bodies.py rewrite`` after hooks or the contract changed."""
    recording = Recording(tree.folder)
    assert search(recording, hooks_of(release), release) == []
    assert list(fixed_upstream(recording)) == []
    assert set(recording.read) == set(known().modules_of(release))
    assert is_untouched(tree, hooks_of(release), release)


def test_plugins_are_loaded(tree):
    """Catches a process that stops calling ``load_plugins()``, before the scheduler."""
    engine = "sglang.srt.entrypoints.engine"
    for module, name in (
        (engine, "Engine.__init__"),
        (engine, "Engine._launch_subprocesses"),
        (SCHEDULER, "run_scheduler_process"),
    ):
        assert _calls(tree.find(module, name).node, "load_plugins"), name
    process = tree.find(SCHEDULER, "run_scheduler_process").node
    made = [n.lineno for n in ast.walk(process) if _is_call(n, "Scheduler")]
    made += [n.lineno for n in ast.walk(process) if _is_call(n, "configure_scheduler")]
    assert made == [] or min(made) > min(_calls(process, "load_plugins"))


def test_the_cap_is_derived_as_the_policy_says(tree):
    """Catches another formula than ``policy.stock_cap``, and one that overrules the
    user."""
    node = tree.find(SCHEDULER, "Scheduler.init_model_worker").node
    (guard,) = (
        n
        for n in ast.walk(node)
        if isinstance(n, ast.If) and "pp_max_micro_batch_size" in ast.unparse(n.test)
    )
    assert ast.unparse(guard.test).startswith("not ")
    (value,) = (n for n in ast.walk(guard) if _is_call(n, "max"))
    floor, one = value.args
    assert isinstance(floor.op, ast.FloorDiv)
    assert ast.unparse(floor.left) == "self.max_running_requests"
    assert ast.unparse(floor.right).endswith("pp_size")
    assert ast.unparse(one) == "1"


def test_the_loop_sets_the_slot_first(tree):
    """Catches a loop that asks for a batch before ``running_batch`` is the slot's, or
    keeps it elsewhere: the ring could not tell whose turn it is."""
    node = tree.find(SCHEDULER, "Scheduler.event_loop_pp").node
    lines = ast.unparse(node).splitlines()
    order = (
        "self.init_pp_loop_state()",
        "for mb_id in range(self.pp_loop_size):",
        "self.running_batch = self.running_mbs[mb_id]",
        "self.last_batch = self.last_mbs[mb_id]",
        "self.get_next_batch_to_run(",
        "self.running_mbs[mb_id] = self.running_batch",
    )
    places = [next(i for i, li in enumerate(lines) if text in li) for text in order]
    assert places == sorted(places)


def test_a_refused_request_latches_at_no_token_only(tree):
    """Catches a loop that latches the slot, or goes on, when a request is refused with
    ``OTHER``."""
    node = tree.find(SCHEDULER, "Scheduler._get_new_batch_prefill_raw").node
    (refused,) = (
        n
        for n in ast.walk(node)
        if isinstance(n, ast.If)
        and ast.unparse(n.test) == "res != AddReqResult.CONTINUE"
    )
    assert isinstance(refused.body[-1], ast.Break)
    latches = [
        n
        for n in ast.walk(refused)
        if isinstance(n, ast.Assign) and "batch_is_full" in ast.unparse(n.targets[0])
    ]
    (inner,) = (
        n
        for n in ast.walk(refused)
        if isinstance(n, ast.If)
        and ast.unparse(n.test) == "res == AddReqResult.NO_TOKEN"
    )
    assert latches
    assert all(n in list(ast.walk(inner)) for n in latches)


def test_retraction_aborts_the_last_request_last(tree):
    """Catches an abort that keeps its KV, or that is not the last one: a request that
    goes back to the queue instead would leak, or be the wrong one."""
    node = tree.find(
        "sglang.srt.managers.schedule_batch", "ScheduleBatch.retract_decode"
    ).node
    text = ast.unparse(node)
    tail = text[text.index("last_idx = sorted_indices.pop()") :]
    assert "reqs_to_abort.append(last_req)" in tail
    assert "self.release_req(last_idx, 0" in tail
    assert tail.count("reqs_to_abort.append") == 1
    assert ast.unparse(node.body[-1]).startswith("return (retracted_reqs, ")
    assert ast.unparse(node.body[-1]).endswith(", reqs_to_abort)")


def test_server_arguments_exist(tree):
    """Catches an argument that was renamed: ``out_of_scope`` would let everything in.
    The classes moved to ``arg_groups`` with 0.5.20."""
    folder = tree.folder.joinpath("srt", "arg_groups", "fields")
    text = tree.text("sglang.srt.server_args").decode()
    if folder.is_dir():
        text += "".join(p.read_text() for p in folder.iterdir() if p.is_file())
    for name in (
        "pp_async_batch_depth",
        "pp_max_micro_batch_size",
        "disaggregation_mode",
        "speculative_algorithm",
        "enable_dp_attention",
        "dllm_algorithm",
        "enable_hisparse",
        "enable_metrics",
    ):
        assert re.search(rf"^    {name}: ", text, re.MULTILINE), name


def test_the_prefill_budget_is_of_one_slot(tree):
    """Catches a release that counts the future tokens of all slots itself: ours would
    count twice."""
    text = ast.unparse(tree.find(POLICY, "PrefillAdder.__init__").node)
    assert "for r in running_batch.reqs" in text
    assert "running_mbs" not in text


def _is_call(node, name):
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith(name)


def _calls(node, name):
    return [n.lineno for n in ast.walk(node) if _is_call(n, name)]


def test_the_table_of_releases_is_up_to_date():
    """Catches a page that says something else than the wheels and the lab runs."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "release_matrix.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 2:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, f"{done.stdout}{done.stderr}run it without --check"
