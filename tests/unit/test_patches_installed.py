"""Apply and revert on an installed SGLang: whole or not at all.

The tree is real SGLang source. Every test names, in its docstring, the wrong change
that it catches.
"""

import ctypes
import errno
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.version import Version
from patches_site import NEWEST, contents, small_package, without_swap

from sglang_ppfix.cli import main
from sglang_ppfix.patches import PatchSetError, installed, strict
from sglang_ppfix.patches.exchange import exchange
from sglang_ppfix.patches.package import OURS


@pytest.fixture
def package(tmp_path):
    return small_package(tmp_path / "site")


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
    """Catches a revert over a hand-made change, which would undo it, and an apply that
    takes such a tree for whole, or for stock with leftovers."""
    installed.apply(package, NEWEST)
    environ = package.folder / "srt" / "environ.py"
    environ.write_text(environ.read_text() + "# mine\n")
    before = contents(package)
    for call in (installed.revert, lambda found: installed.apply(found, NEWEST)):
        with pytest.raises(PatchSetError, match=r"environ\.py was changed since"):
            call(package)
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


def test_a_local_build(package, capsys):
    """Catches an exact comparison of releases: builds for a CUDA have a local part."""
    (info,) = package.folder.parent.glob("*.dist-info")
    info.rename(info.with_name(f"sglang-{NEWEST}+cu130.dist-info"))
    assert package.release() == Version(f"{NEWEST}+cu130")
    assert main(["patches", "apply", "--package", str(package.folder)]) == 0
    assert f"sglang {NEWEST}+cu130 has" in capsys.readouterr().out


def test_a_mount_cannot_be_swapped(monkeypatch, tmp_path):
    """Catches an error where the other way is open: a mounted folder is busy. And
    catches errors that are taken for "cannot" although they say why."""
    refusing = SimpleNamespace(renameat2=lambda *_: -1)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: refusing)
    monkeypatch.setattr(ctypes, "get_errno", lambda: errno.EBUSY)
    assert not exchange(tmp_path, tmp_path)
    monkeypatch.setattr(ctypes, "get_errno", lambda: errno.EACCES)
    with pytest.raises(PermissionError):
        exchange(tmp_path, tmp_path)


def test_the_extra_that_is_named_exists():
    """Catches advice to install an extra that pip does not know, and tests that are
    skipped because the group of the tests lacks it."""
    root = Path(__file__).parents[2]
    named = re.findall(
        r"sglang-ppfix\[(\w+)\]", Path(strict.__file__).read_text("utf-8")
    )
    project = (root / "pyproject.toml").read_text("utf-8")
    assert named == ["patches"]
    assert re.search(r'^patches = \["(unidiff[^"]*)"\]$', project, re.MULTILINE)
    group = re.search(r"^test = \[\n(.*?)^\]$", project, re.MULTILINE | re.DOTALL)[1]
    assert '"unidiff>=' in group
    assert '"msgspec"' in group
