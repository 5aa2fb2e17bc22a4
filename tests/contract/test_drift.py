"""Drift put into real source: contract, doctor and start-up name it, each by itself.

The tree holds the files of the newest release that a verdict reads, one of them
changed. Nothing is imported from it; ``test_drift_at_start.py`` imports.
"""

import os
import subprocess
import sys

import pytest
from conftest import NEWEST
from doctor_site import Site

from sglang_ppfix.compat.drift import drifts, is_untouched
from sglang_ppfix.compat.source import SourceTree
from sglang_ppfix.doctor.targets import hooks_of

MANAGERS = "sglang.srt.managers"
#: id: (module that is changed, old text, new text, what must be named)
DRIFT = {
    "renamed method": (
        f"{MANAGERS}.scheduler",
        "def get_next_batch_to_run(",
        "def pick_batch_to_run(",
        f"{MANAGERS}.scheduler.Scheduler.get_next_batch_to_run does not exist",
    ),
    "renamed method of the mixin": (
        f"{MANAGERS}.scheduler_pp_mixin",
        "def init_pp_loop_state(",
        "def init_ring(",
        f"{MANAGERS}.scheduler.Scheduler.init_pp_loop_state does not exist",
    ),
    "new parameter": (
        f"{MANAGERS}.schedule_policy",
        "def add_one_req_ignore_eos(self, req: Req",
        "def add_one_req_ignore_eos(self, req: Req, force: bool",
        (
            f"{MANAGERS}.schedule_policy.PrefillAdder.add_one_req_ignore_eos takes "
            "(req, force), expected (req)"
        ),
    ),
    "parameter gone from a long list": (
        f"{MANAGERS}.schedule_policy",
        "        waiting_queue_len: int = 0,\n",
        "        queue_len: int = 0,\n",
        (
            f"{MANAGERS}.schedule_policy.PrefillAdder.__init__ has other parameters: "
            "new queue_len, gone waiting_queue_len"
        ),
    ),
    "changed body": (
        f"{MANAGERS}.schedule_batch",
        "reqs_to_abort.append(last_req)",
        "reqs_to_abort.insert(0, last_req)",
        (
            f"{MANAGERS}.schedule_batch.ScheduleBatch.retract_decode has another body "
            f"than in {NEWEST}"
        ),
    ),
    "changed body of the mixin": (
        f"{MANAGERS}.scheduler_pp_mixin",
        "self.last_batch = self.last_mbs[mb_id]",
        "self.last_batch = self.mbs[mb_id]",
        f"{MANAGERS}.scheduler.Scheduler.event_loop_pp has another body",
    ),
    "renamed attribute": (
        f"{MANAGERS}.schedule_policy",
        "log_input_tokens",
        "log_new_tokens",
        f"{MANAGERS}.schedule_policy.PrefillAdder has no log_input_tokens",
    ),
    "plugins not loaded": (
        f"{MANAGERS}.scheduler",
        "load_plugins()",
        "pass",
        f"{MANAGERS}.scheduler.run_scheduler_process does not mention load_plugins",
    ),
}


@pytest.fixture
def site(tmp_path, sources):
    """An environment with real source of the newest release."""
    made = Site(tmp_path)
    package = made.add_sglang(str(NEWEST))
    for module, text in sources.items():
        path = package.joinpath(*module.split(".")[1:]).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    return made


@pytest.fixture(params=DRIFT, ids=str)
def drifted(request, site):
    """The environment with one drift; its second value is what must be named."""
    module, old, new, named = DRIFT[request.param]
    path = site.folder.joinpath(*module.split(".")).with_suffix(".py")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return site, named


def start(site, mode, **environ):
    """The installer on the source of ``site``, as the import of the scheduler calls
    it; returns the finished process."""
    scheduler = site.folder / "sglang" / "srt" / "managers" / "scheduler.py"
    code = (
        "import types\n"
        "from sglang_ppfix import patching\n"
        "from sglang_ppfix.activation import _Installer\n"
        "from sglang_ppfix.settings import read\n"
        "patching.install = patching.verify = lambda hooks: print('installed')\n"
        "module = types.ModuleType('sglang.srt.managers.scheduler')\n"
        f"module.__file__ = {str(scheduler)!r}\n"
        "_Installer(read())(module)\n"
        "print('the server goes on')\n"
    )
    return subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={
            **os.environ,
            "PYTHONPATH": str(site.folder),
            "SGLANG_PPFIX": mode,
            **environ,
        },
        cwd=site.cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def test_real_source_has_none(site):
    """Catches a check that finds drift everywhere: the tests below would pass."""
    checks = site.examine(SGLANG_PPFIX="1")
    assert [c["state"] for c in checks["targets"]] == ["ok"]
    done = start(site, "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[0] == "installed"


@pytest.mark.parametrize(
    "module", [f"{MANAGERS}.scheduler", f"{MANAGERS}.schedule_batch"]
)
def test_a_change_that_matters_to_nobody(site, module):
    """Catches digests of files that are taken for the verdict itself."""
    path = site.folder.joinpath(*module.split(".")).with_suffix(".py")
    path.write_text(path.read_text() + "\n# a comment\n\ndef unrelated(): pass\n")
    tree = SourceTree(site.folder / "sglang")
    assert not is_untouched(tree, hooks_of(NEWEST), NEWEST)
    assert drifts(tree, hooks_of(NEWEST), NEWEST) == []


def test_contract(drifted):
    """Catches a contract test that the drift passes."""
    site, named = drifted
    tree = SourceTree(site.folder / "sglang")
    assert any(named in str(d) for d in drifts(tree, hooks_of(NEWEST), NEWEST))


def test_doctor(drifted):
    """Catches a doctor that calls a drifted SGLang sound."""
    site, named = drifted
    checks = site.examine(SGLANG_PPFIX="1")
    bad = [c for c in checks["targets"] if c["state"] == "fail"]
    (found,) = (c for c in bad if named in c["text"])
    assert named.startswith(found["subject"])
    assert all("pip install" in c["fix"] for c in bad)


def test_start_up_fails_closed(drifted):
    """Catches a server that starts half patched, or ends without saying why."""
    site, named = drifted
    done = start(site, "1")
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert named in line
    assert "the server ends because SGLANG_PPFIX=1" in line


def test_start_up_runs_stock(drifted):
    """Catches ``auto`` that ends the server, acts all the same, or says nothing."""
    site, named = drifted
    done = start(site, "auto")
    assert done.returncode == 0
    assert done.stdout == "the server goes on\n"
    (line,) = done.stderr.splitlines()
    assert named in line
    assert line.endswith("SGLang runs unchanged")


@pytest.mark.parametrize(
    ("name", "goes_on"), [("changed body", True), ("renamed method", False)]
)
def test_untested_bodies_may_be_tried(site, name, goes_on):
    """Catches an override that lets in what cannot work, or that is silent."""
    module, old, new, named = DRIFT[name]
    path = site.folder.joinpath(*module.split(".")).with_suffix(".py")
    path.write_text(path.read_text().replace(old, new))
    done = start(site, "1", SGLANG_PPFIX_ALLOW_UNTESTED="1")
    assert named in done.stderr
    assert (done.returncode == 0) == goes_on
    assert ("installed" in done.stdout) == goes_on


def test_source_of_another_release(site):
    """Catches a body taken for known because some release has it: a mixture of two
    installations is named as one."""
    renumber(site, "0.5.22")
    checks = site.examine(SGLANG_PPFIX="1")
    texts = [c["text"] for c in checks["targets"] if c["state"] == "fail"]
    assert any(f"than in 0.5.22 (that of {NEWEST})" in text for text in texts)


def test_a_patched_sglang(site):
    """Catches a plugin that acts on top of the diff: shares would be counted twice."""
    path = site.folder / "sglang" / "srt" / "managers" / "scheduler.py"
    old = "    def init_model_worker(self"
    new = "    def _derive_pp_max_micro_batch_size(self): pass\n\n"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new + old))
    (check,) = site.examine(SGLANG_PPFIX="1")["upstream"]
    assert check["state"] == "fail"
    assert check["fix"] == "unset SGLANG_PPFIX"
    assert "derive-cap" in check["text"]
    done = start(site, "1")
    assert done.returncode == 1
    assert "the plugin is not needed" in done.stderr
    assert start(site, "auto").stderr.strip().endswith("SGLang runs unchanged")


def renumber(site, release):
    """Let the source say that it is another release."""
    info = next(site.folder.glob("sglang-*.dist-info"))
    metadata = info / "METADATA"
    metadata.write_text(metadata.read_text().replace(str(NEWEST), release))
    (site.folder / "sglang" / "_version.py").unlink()


def test_a_post_release_with_the_same_bodies(site):
    """Catches a post release that is refused although nothing of ours changed in it."""
    renumber(site, f"{NEWEST}.post1")
    checks = site.examine(SGLANG_PPFIX="1")
    assert [c["state"] for c in checks["release"]] == ["warn"]
    assert "not tested itself" in checks["release"][0]["text"]
    assert [c["state"] for c in checks["targets"]] == ["ok"]
    assert start(site, "1").stdout.startswith("installed")


def test_a_post_release_with_another_body(site):
    """Catches a body that nobody has read, let in because its release has no list."""
    module, old, new, _named = DRIFT["changed body"]
    path = site.folder.joinpath(*module.split(".")).with_suffix(".py")
    path.write_text(path.read_text().replace(old, new))
    renumber(site, f"{NEWEST}.post1")
    done = start(site, "1")
    assert done.returncode == 1
    assert "retract_decode has a body that is in no tested release" in done.stderr
