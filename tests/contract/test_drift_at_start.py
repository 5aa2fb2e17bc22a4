"""Drift at the start of real SGLang: an import of it, once for each test.

The static tests of ``test_drift.py`` cover more kinds; these show that what they check
is what happens.
"""

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import NEWEST

pytestmark = pytest.mark.lab

METHOD = "sglang.srt.managers.scheduler.Scheduler.get_next_batch_to_run"

STOCK = "stock Scheduler.__init__ runs"

RIVAL = f"""
import os

def new(self, running_batch, last_batch):
    raise AssertionError("never called")

def register():
    if os.environ["RIVAL"] == "replace":
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType
        HookRegistry.register("{METHOD}", new, HookType.REPLACE)
    elif os.environ["RIVAL"] == "assign first":
        from sglang.srt.managers.scheduler import Scheduler
        Scheduler.get_next_batch_to_run = new
"""

# Imports SGLang once, as a spawned scheduler process does before it loads plugins, and
# then starts every case in a fork.
DRIVER = """
import json, os, sys
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt import plugins
from sglang_ppfix import patching
import rival

def case(mode, how):
    os.environ.update(SGLANG_PPFIX=mode, RIVAL=how)
    plugins.load_plugins()
    if how == "assign last":
        Scheduler.get_next_batch_to_run = rival.new
    try:
        Scheduler.__init__(object.__new__(Scheduler), None, None)
    except (AttributeError, TypeError, ValueError):
        print("stock Scheduler.__init__ runs")
    print("hooked" if patching.marked(Scheduler.init_pp_loop_state) else "not hooked")

for mode, how in json.loads(sys.argv[1]):
    pid = os.fork()
    if pid == 0:
        for fd in (1, 2):
            os.dup2(os.open(f"{mode} {how}", os.O_CREAT | os.O_APPEND | os.O_RDWR), fd)
        code = 0
        try:
            case(mode, how)
        except SystemExit as error:
            print(error.code, file=sys.stderr)
            code = 1
        sys.stdout.flush()
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with open(f"{mode} {how}", "a") as file:
        file.write(f"exit status {code}\\n")
"""


@pytest.fixture(scope="module", autouse=True)
def real_sglang():
    """The installed SGLang, or skip."""
    try:
        found = importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("sglang is not installed")
    if found != str(NEWEST):
        pytest.skip(f"sglang {found} is installed, not {NEWEST}")


def environment(folder, **more):
    """Environment variables with ``folder`` in front of everything importable."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("SGLANG_")}
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return {**clean, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **more}


def test_a_method_that_another_plugin_replaced(tmp_path):
    """Catches a replacement that looks hooked (SGLang's keep ``__wrapped__``), one made
    before ours and one made after; and ``auto`` that leaves hooks behind."""
    (tmp_path / "rival.py").write_text(RIVAL)
    (tmp_path / "driver.py").write_text(DRIVER)
    info = tmp_path / "rival-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rival\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[sglang.srt.plugins]\nrival = rival:register\n"
    )
    ways = ("none", "replace", "assign first", "assign last")
    cases = [(mode, how) for mode in ("1", "auto") for how in ways]
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        [sys.executable, str(tmp_path / "driver.py"), json.dumps(cases)],
        env=environment(tmp_path, SGLANG_PLUGINS="ppfix,rival"),
        cwd=work,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for mode, how in cases:
        lines = (work / f"{mode} {how}").read_text().splitlines()
        ours = [line for line in lines if line.startswith("sglang-ppfix")]
        if how == "none":
            assert "hooked sglang" in ours[-1]
            assert lines[-3:] == [STOCK, "hooked", "exit status 0"]
            continue
        assert METHOD in ours[-1]
        assert "rival" in ours[-1]
        if mode == "1":
            assert "the server ends because SGLANG_PPFIX=1" in ours[-1]
            assert lines[-1] == "exit status 1"
            assert STOCK not in lines
        else:
            assert ours[-1].endswith("SGLang runs unchanged")
            assert lines[-3:] == [STOCK, "not hooked", "exit status 0"]


def linked_copy(folder, changed):
    """SGLang as links, with real folders on the way to the file ``changed``."""
    spec = importlib.util.find_spec("sglang")
    original = Path(spec.origin).parent
    here, there = folder / "sglang", original
    for part in (*Path(changed).parts, None):
        here.mkdir()
        for entry in there.iterdir():
            if entry.name not in (part, "__pycache__"):
                (here / entry.name).symlink_to(entry)
        if part is None or part == Path(changed).name:
            break
        here, there = here / part, there / part
    return original / changed, folder / "sglang" / changed


def test_a_changed_body_ends_the_server(tmp_path):
    """Catches a check that real start-up does not reach: ``launch_server`` itself ends,
    with one line of ours and no traceback."""
    source, copy = linked_copy(tmp_path, "srt/managers/schedule_batch.py")
    text = source.read_text()
    old = "reqs_to_abort.append(last_req)"
    assert old in text
    copy.write_text(text.replace(old, "reqs_to_abort.insert(0, last_req)"))
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(
        json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama"})
    )
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "sglang.launch_server", "--device", "cpu"),
            *("--model-path", str(model), "--load-format", "dummy"),
            *("--skip-tokenizer-init", "--pp-size", "2"),
        ],
        env=environment(tmp_path, SGLANG_PPFIX="1", HF_HUB_OFFLINE="1"),
        cwd=work,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("sglang-ppfix ")
    assert "ScheduleBatch.retract_decode has another body than in" in last
    assert "Traceback" not in done.stderr
