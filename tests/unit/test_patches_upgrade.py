"""pip installs another SGLang over a patched one: what we added stays behind.

Every test names, in its docstring, the wrong change that it catches.
"""

import shutil

import pytest
from patches_site import NEWEST, contents, small_package, upgrade, without_swap

from sglang_ppfix.cli import main
from sglang_ppfix.patches import PatchSetError, in_place, installed
from sglang_ppfix.patches.folder import releases
from sglang_ppfix.patches.package import OURS

OLDER = releases()[1]
ADDED = ("sglang/srt/managers/pp_filling.py", "sglang/srt/managers/pp_slots.py")


@pytest.fixture
def stock(tmp_path):
    """The newest release as it is published."""
    return contents(small_package(tmp_path / "stock"))


@pytest.fixture
def package(tmp_path):
    """A patched older release."""
    package = small_package(tmp_path / "site", OLDER)
    installed.apply(package, OLDER)
    return package


def is_patched(package, stock):
    """Whether the tree is whole, and the way back leads to stock."""
    assert package.manifest().release == str(NEWEST)
    whole = contents(package)
    changed = {path for path in stock if whole[path] != stock[path]}
    assert "sglang/srt/managers/scheduler.py" in changed
    installed.revert(package)
    return contents(package) == stock


@pytest.mark.parametrize("swap", [True, False], ids=["swap", "one by one"])
def test_apply_anew(package, stock, monkeypatch, capsys, swap):
    """Catches a manifest that is believed without a look at the files: exit 0, "has the
    change already", and a stock scheduler."""
    if not swap:
        without_swap(monkeypatch)
    upgrade(package, NEWEST)
    assert main(["patches", "apply", "--package", str(package.folder)]) == 0
    assert f"sglang {NEWEST} has" in capsys.readouterr().out
    assert is_patched(package, stock)


def test_revert_cleans_up(package, stock, capsys):
    """Catches a refusal where nothing of ours is in use, and files that stay."""
    upgrade(package, NEWEST)
    assert main(["patches", "revert", "--package", str(package.folder)]) == 0
    assert contents(package) == stock
    assert "stock again: 2 changed files" in capsys.readouterr().out


def test_the_same_release_again(package, stock):
    """Catches a reinstallation that is taken for a whole tree."""
    upgrade(package, OLDER)
    assert "sglang/srt/managers/scheduler.py" in installed.apply(package, OLDER)


def test_without_the_manifest(package, stock):
    """Catches "exists already" for good, once somebody has removed our folder."""
    upgrade(package, NEWEST)
    shutil.rmtree(package.folder / OURS)
    installed.apply(package, NEWEST)
    assert is_patched(package, stock)


@pytest.mark.parametrize("manifest", [True, False])
def test_a_file_that_is_not_ours(package, manifest):
    """Catches the removal of a file that only has the name of one of ours."""
    upgrade(package, NEWEST)
    package.at(ADDED[0]).write_text("# theirs\n")
    if not manifest:
        shutil.rmtree(package.folder / OURS)
    before = contents(package)
    with pytest.raises(
        PatchSetError, match=r"pp_filling\.py exists already.*remove it"
    ):
        installed.apply(package, NEWEST)
    assert contents(package) == before


@pytest.mark.parametrize("manifest", [True, False])
def test_files_in_use(package, manifest):
    """Catches leftovers that are none: every file was changed by hand, and the change
    is in them. Without the manifest the series refuses first."""
    for path in package.manifest().edited:
        with package.at(path).open("a") as file:
            file.write("# mine\n")
    if not manifest:
        shutil.rmtree(package.folder / OURS)
    before = contents(package)
    for call in (lambda: installed.apply(package, OLDER), lambda: revert(package)):
        with pytest.raises(PatchSetError):
            call()
    assert contents(package) == before


def revert(package):
    """Nothing to do is as good as refused here."""
    try:
        installed.revert(package)
    except installed.Done as done:
        raise PatchSetError(str(done)) from done


def test_a_release_without_a_series(package, capsys):
    """Catches a refusal that has removed something before."""
    upgrade(package, NEWEST)
    (info,) = package.folder.parent.glob("*.dist-info")
    info.rename(info.with_name("sglang-9.0.dist-info"))
    before = contents(package)
    assert main(["patches", "apply", "--package", str(package.folder)]) == 2
    assert "no series for sglang 9.0" in capsys.readouterr().err
    assert contents(package) == before


def test_killed_then_upgraded(tmp_path, stock, monkeypatch):
    """Catches originals of the old release that are put over the new one."""
    package = small_package(tmp_path / "site", OLDER)
    with monkeypatch.context() as patch:
        without_swap(patch)
        # As killed between the stand-ins and the switch.
        patch.setattr(in_place, "_switch", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            installed.apply(package, OLDER)
    assert not package.manifest().complete
    upgrade(package, NEWEST)
    installed.apply(package, NEWEST)
    assert is_patched(package, stock)


@pytest.mark.parametrize("ours", ["scheduler", "environ"])
def test_half_an_upgrade(package, stock, ours):
    """Catches a mixture of two releases that is taken for either: one file is as we
    made it, one that uses what we added or one that does not."""
    for path in package.manifest().edited:
        if package.at(path).stem != ours:
            package.at(path).write_bytes(stock[path])
    before = contents(package)
    for call in (lambda: installed.apply(package, OLDER), lambda: revert(package)):
        with pytest.raises(PatchSetError, match=r"\.py was changed since.*anew"):
            call()
    assert contents(package) == before
