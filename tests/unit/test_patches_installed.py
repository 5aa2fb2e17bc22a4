"""Apply and revert on an installed SGLang: whole or not at all.

The tree is real SGLang source. Every test names, in its docstring, the wrong change
that it catches.
"""

import os
import signal
import subprocess
import sys
import textwrap

import pytest
from patches_site import NEWEST, contents, small_package

pytest.importorskip("unidiff")

from sglang_ppfix.cli import main
from sglang_ppfix.patches import PatchSetError, installed
from sglang_ppfix.patches.package import OURS


@pytest.fixture
def package(tmp_path):
    return small_package(tmp_path / "site")


def without_swap(monkeypatch):
    """As on the layers of a container image."""
    monkeypatch.setattr(installed, "exchange", lambda one, other: False)


@pytest.mark.parametrize("swap", [True, False], ids=["swap", "one by one"])
def test_apply_and_revert(package, monkeypatch, swap):
    """Catches a revert that leaves a file, a mode or a line behind."""
    if not swap:
        without_swap(monkeypatch)
    scheduler = package.folder / "srt" / "managers" / "scheduler.py"
    scheduler.chmod(0o755)
    stock = contents(package)
    changed = installed.apply(package, NEWEST)
    patched = contents(package)
    assert "sglang/srt/managers/pp_filling.py" in changed
    assert {p for p in patched if patched[p] != stock.get(p)} == {
        *changed,
        *(p for p in patched if f"/{OURS}/" in p),
    }
    assert installed.revert(package) == changed
    assert contents(package) == stock
    assert scheduler.stat().st_mode & 0o777 == 0o755
    assert (package.folder / "link.py").is_symlink()


def test_twice(package):
    """Catches a second apply that backs up the patched files as originals."""
    stock = contents(package)
    installed.apply(package, NEWEST)
    with pytest.raises(installed.Done, match="has the change already"):
        installed.apply(package, NEWEST)
    installed.revert(package)
    with pytest.raises(installed.Done, match="stock already"):
        installed.revert(package)
    assert contents(package) == stock


def test_a_tree_that_does_not_match(package):
    """Catches fuzz: one context line differs, and nothing may be written."""
    batch = package.folder / "srt" / "managers" / "schedule_batch.py"
    text = batch.read_text()
    batch.write_text(text.replace("# Instead of crashing", "# In place of crashing"))
    before = contents(package)
    with pytest.raises(PatchSetError, match=r"schedule_batch\.py:\d+ is .*expected"):
        installed.apply(package, NEWEST)
    assert contents(package) == before


def test_an_offset_is_a_mismatch(package):
    """Catches hunks that slide: all context is there, one line further down."""
    environ = package.folder / "srt" / "environ.py"
    environ.write_text("\n" + environ.read_text())
    with pytest.raises(PatchSetError, match=r"environ\.py:\d+ is"):
        installed.apply(package, NEWEST)


def test_changed_since(package):
    """Catches a revert over an upgrade or a hand-made change: it would undo that."""
    installed.apply(package, NEWEST)
    environ = package.folder / "srt" / "environ.py"
    environ.write_text(environ.read_text() + "# mine\n")
    before = contents(package)
    with pytest.raises(PatchSetError, match=r"environ\.py was changed since"):
        installed.revert(package)
    assert contents(package) == before


def test_a_change_elsewhere_survives(package):
    """Catches a revert that puts the old folder back, whatever happened in it."""
    installed.apply(package, NEWEST)
    (package.folder / "srt" / "hotfix.py").write_text("x = 1\n")
    installed.revert(package)
    assert (package.folder / "srt" / "hotfix.py").read_text() == "x = 1\n"


def test_a_git_checkout_is_refused(tmp_path):
    """Catches files changed behind git's back, where git am is the tool."""
    package = small_package(tmp_path / "sglang-repo" / "python")
    (tmp_path / "sglang-repo" / ".git").mkdir()
    with pytest.raises(PatchSetError, match="git am"):
        installed.apply(package, NEWEST)


# Kills itself at the N-th step that changes the file system, whichever that is.
KILLER = textwrap.dedent(
    """
    import os, pathlib, shutil, signal, sys
    from sglang_ppfix.patches import exchange, installed
    from sglang_ppfix.patches.package import Package
    from packaging.version import Version

    action, folder, release, swap, kill_at = sys.argv[1:]
    steps = 0

    def counted(function):
        def wrapper(*args, **kwargs):
            global steps
            steps += 1
            if steps == int(kill_at):
                os.kill(os.getpid(), signal.SIGKILL)
            result = function(*args, **kwargs)
            steps += 1
            if steps == int(kill_at):
                os.kill(os.getpid(), signal.SIGKILL)
            return result
        return wrapper

    if swap == "no":
        installed.exchange = lambda one, other: False
    installed.exchange = counted(installed.exchange)
    for module, names in {
        os: ("link", "mkdir", "replace", "rename", "unlink", "rmdir", "fsync"),
        pathlib.Path: ("replace", "unlink", "mkdir"),
    }.items():
        for name in names:
            setattr(module, name, counted(getattr(module, name)))
    package = Package(pathlib.Path(folder))
    if action == "apply":
        installed.apply(package, Version(release))
    else:
        installed.revert(package)
    print(steps)
    """
)


def killed(action, package, swap, kill_at):
    """Run an action in a process that is killed at a step; its exit status."""
    done = subprocess.run(
        [
            *(sys.executable, "-c", KILLER, action, str(package.folder)),
            *(str(NEWEST), "yes" if swap else "no", str(kill_at)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return int(done.stdout)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return None


def steps_to_kill(total):
    """Every step, or a spread of them where there are many alike."""
    every = range(1, total + 1)
    return (
        every
        if total <= 40
        else sorted({*every[:4], *every[:: total // 12], *every[-8:]})
    )


@pytest.mark.parametrize("swap", [True, False], ids=["swap", "one by one"])
@pytest.mark.parametrize("action", ["apply", "revert"])
def test_killed_at_every_step(tmp_path, action, swap):
    """Catches a tree that is half changed.

    By the swap it is never half, not even before the next call; one by one, the next
    call makes it stock again (apply) or finishes (revert).
    """
    trial = small_package(tmp_path / "trial")
    stock = contents(trial)
    if action == "revert":
        installed.apply(trial, NEWEST)
    whole = contents(trial)
    if action == "apply":
        total = killed("apply", trial, swap, 0)
        whole = contents(trial)
        installed.revert(trial)
    else:
        total = killed("revert", trial, swap, 0)
        installed.apply(trial, NEWEST)
    for kill_at in steps_to_kill(total):
        killed(action, trial, swap, kill_at)
        if swap:
            found = package_only(contents(trial))
            assert found in (package_only(stock), package_only(whole)), kill_at
        installed.recover(trial)
        found = contents(trial)
        assert found in (stock, whole), kill_at
        # From here on as from the start.
        if action == "apply" and found == whole:
            installed.revert(trial)
        elif action == "revert" and found == stock:
            installed.apply(trial, NEWEST)


def package_only(found):
    return {p: text for p, text in found.items() if p.startswith("sglang/")}


def test_cli(package, capsys):
    """Catches a traceback, or a change, where the package's release has no series."""
    folder = str(package.folder)
    assert main(["patches", "apply", "--package", folder]) == 0
    assert f"sglang {NEWEST} has" in capsys.readouterr().out
    assert main(["patches", "apply", "--package", folder]) == 0
    assert "already" in capsys.readouterr().out
    assert main(["patches", "revert", "--package", folder]) == 0
    capsys.readouterr()
    (info,) = package.folder.parent.glob("*.dist-info")
    info.rename(info.with_name("sglang-0.4.0.dist-info"))
    assert main(["patches", "apply", "--package", folder]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no series for sglang 0.4.0" in line
    assert main(["patches", "apply", "--package", os.devnull]) == 2
    assert "not a package folder" in capsys.readouterr().err
