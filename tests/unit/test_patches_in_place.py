"""Files changed where they lie: after every single write the tree is stock or whole.

Every test names, in its docstring, the wrong change that it catches.
"""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest
from patches_site import NEWEST, contents, sides, small_package, without_swap

from sglang_ppfix.patches import in_place, installed
from sglang_ppfix.patches.package import ORIGINALS, OURS, Manifest, Package, digest

# As in the diffs: a field is renamed that another file fills, and both use a new file.
OLD = {
    "sglang/srt/field.py": "def load(*, batch):\n    return batch\n",
    "sglang/srt/user.py": "from .field import load\nprint(load(batch='stock'))\n",
}
NEW = {
    "sglang/srt/added.py": "WORD = 'whole'\n",
    "sglang/srt/field.py": "def load(*, reqs):\n    return reqs\n",
    "sglang/srt/user.py": (
        "from __future__ import annotations\nfrom .added import WORD\n"
        "from .field import load\nprint(load(reqs=WORD))\n"
    ),
}


class Killed(BaseException):
    """Nothing handles it, like a signal."""


@pytest.fixture
def stop_after(monkeypatch):
    """Let no more than so many writes and removals happen."""
    left = [-1]

    def counted(function):
        def wrapper(*args, **kwargs):
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return function(*args, **kwargs)

        return wrapper

    for name in ("replace", "unlink"):
        monkeypatch.setattr(Path, name, counted(getattr(Path, name)))

    def stop(steps):
        left[0] = steps

    return stop


def toy(folder):
    """An SGLang of two modules."""
    for path, text in {**OLD, "sglang/__init__.py": ""}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return Package(folder / "sglang")


def change(package):
    old = {path: OLD.get(path) for path in NEW}
    manifest = Manifest(
        str(NEWEST),
        {path: digest(text) for path, text in old.items()},
        {path: digest(text) for path, text in NEW.items()},
    )
    kept = {f"sglang/{OURS}/{ORIGINALS}/{path}": text for path, text in OLD.items()}
    in_place.change(package, manifest, kept, NEW)


def imported(package):
    """What the package says to an interpreter, which may cache what it compiled."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import sglang.srt.user"],
        cwd=package.folder.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("action", ["apply", "revert"])
def test_every_prefix_imports(tmp_path, monkeypatch, stop_after, action):
    """Catches any order of plain writes, and a switch that turns before all is there:
    in between the import fails."""
    without_swap(monkeypatch)
    said = []
    for steps in range(100):
        package = toy(tmp_path / str(steps))
        if action == "revert":
            change(package)
            assert imported(package) == "whole"
        stop_after(steps)
        try:
            change(package) if action == "apply" else installed.revert(package)
            break
        except Killed:
            said.append(imported(package))
        finally:
            stop_after(-1)
        installed.recover(package)
        assert imported(package) in ("stock", "whole")
        assert package.manifest() is None or package.manifest().complete
    turns = [pair for pair in itertools.pairwise(said) if pair[0] != pair[1]]
    assert turns == [("stock", "whole") if action == "apply" else ("whole", "stock")]
    assert imported(package) == ("whole" if action == "apply" else "stock")


def test_every_prefix_of_the_series(tmp_path, monkeypatch):
    """Catches a scheduler.py that is changed while another file is not, or before a
    file that it imports is there."""
    without_swap(monkeypatch)
    package = small_package(tmp_path)
    stock = contents(package)
    installed.apply(package, NEWEST)
    whole = contents(package)
    installed.revert(package)
    seen = []

    def watched(function):
        def wrapper(*args, **kwargs):
            result = function(*args, **kwargs)
            seen.append(sides(package, stock, whole))
            return result

        return wrapper

    for name in ("replace", "unlink"):
        monkeypatch.setattr(Path, name, watched(getattr(Path, name)))
    installed.apply(package, NEWEST)
    turn = seen.index({"whole"})
    assert seen == [{"stock"}] * turn + [{"whole"}] * (len(seen) - turn)
    assert contents(package) == whole
    seen.clear()
    installed.revert(package)
    turn = seen.index({"stock"})
    assert seen == [{"whole"}] * turn + [{"stock"}] * (len(seen) - turn)
    assert contents(package) == stock


def test_a_mounted_package(tmp_path, monkeypatch):
    """Catches a file that is written beside the package and moved into it: a mounted
    folder is another file system."""
    package = toy(tmp_path)
    replace = Path.replace

    def within(self, target):
        assert self.is_relative_to(package.folder)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", within)
    change(package)
    assert imported(package) == "whole"
