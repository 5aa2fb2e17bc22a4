"""A small SGLang: the files that a series touches, out of the wheel, and a few more."""

import shutil
import zipfile
from pathlib import Path

import pytest

from sglang_ppfix.patches import PatchSetError, tree
from sglang_ppfix.patches.folder import releases, series
from sglang_ppfix.patches.in_place import stand_in
from sglang_ppfix.patches.package import OURS, Package
from sglang_ppfix.patches.strict import touched
from sglang_ppfix.patches.wheels import fetch

NEWEST = releases()[0]


def small_package(folder: Path, release=NEWEST) -> Package:
    """The package of a release, without what no test here looks at; or skip."""
    try:
        wheel = zipfile.ZipFile(fetch(release))
    except PatchSetError as error:
        pytest.skip(str(error))
    paths = touched([(mail.path.name, mail.diff) for mail in series(release)])
    for path, there in paths.items():
        if there:
            wheel.extract(path, folder)
    for name in wheel.namelist():
        if name == "sglang/__init__.py" or name.endswith(".dist-info/METADATA"):
            wheel.extract(name, folder)
    (folder / "sglang" / "link.py").symlink_to("__init__.py")
    return Package(folder / "sglang")


def upgrade(package: Package, release) -> None:
    """As pip does it: files of the record go and come, others stay."""
    folder = package.folder.parent
    for info in folder.glob("sglang-*.dist-info"):
        shutil.rmtree(info)
    for path in package.folder.rglob("*.py"):
        if OURS not in path.parts and path.name not in ("pp_filling.py", "pp_slots.py"):
            path.unlink()
    small_package(folder, release)


def without_swap(monkeypatch) -> None:
    """As on the layers of a container image."""
    monkeypatch.setattr(tree, "exchange", lambda one, other: False)


def acting_text(package: Package, path: str) -> str | None:
    """Text that Python runs where a module is imported, also by way of a stand-in."""
    text = package.read(path)
    if text != stand_in(path):
        return text
    names = {
        "__file__": str(package.at(path)),
        "compile": lambda text, *_, **__: text,
        "exec": lambda text: names.update(found=text.decode()),
    }
    exec(text, names)
    return names["found"]


def sides(package: Package, stock: dict[str, bytes], whole: dict[str, bytes]) -> set:
    """Which of two trees the files act as that differ between them."""
    found = set()
    for path in stock:
        if path in whole and stock[path] != whole[path]:
            text = (acting_text(package, path) or "").encode()
            found.add({stock[path]: "stock", whole[path]: "whole"}.get(text, path))
    if "whole" in found:
        added = [path for path in whole if path not in stock and OURS not in path]
        found |= {path for path in added if package.read(path) is None}
    return found


def contents(package: Package) -> dict[str, bytes]:
    """Everything in and beside the package, by path."""
    root = package.folder.parent
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "dist-info" not in str(path)
    }
