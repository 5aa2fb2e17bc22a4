"""A small SGLang: the files that a series touches, out of the wheel, and a few more."""

import zipfile
from pathlib import Path

import pytest

from sglang_ppfix.patches import PatchSetError
from sglang_ppfix.patches.folder import releases, series
from sglang_ppfix.patches.package import Package
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


def contents(package: Package) -> dict[str, bytes]:
    """Everything in and beside the package, by path."""
    root = package.folder.parent
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "dist-info" not in str(path)
    }
