"""Write into a package folder, or build it anew beside and swap."""

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from .exchange import exchange
from .package import Package

#: Beside the package, so that it is on the same file system; no importable name.
STAGING = ".sglang-ppfix-staging"


def swap(package: Package, files: Mapping[str, str], drop: Iterable[str]) -> bool:
    """Build the folder anew, with files by their paths in the wheel, and swap.

    Returns:
        False where folders cannot be swapped; the package is as it was then.
    """
    staging = package.folder.parent / STAGING
    built = staging / package.folder.name
    staging.mkdir()
    dropped = {package.at(path) for path in drop}

    def left_out(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if Path(folder, name) in dropped]

    shutil.copytree(
        *(package.folder, built),
        symlinks=True,
        ignore=left_out,
        copy_function=link,
    )
    for path, text in files.items():
        write(staging / path, text, staging)
    swapped = exchange(built, package.folder)
    shutil.rmtree(staging)
    return swapped


def link(source: str, target: str) -> None:
    """A second name of a file, or a copy."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # no hard links here, or too many of this file
        shutil.copy2(source, target, follow_symlinks=False)


def write(target: Path, text: str, staging: Path) -> None:
    """Write a file in one step, by way of a folder on the same file system.

    A new file every time: writing into a hard link would change the other tree.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = staging / "file"
    with beside.open("w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    if target.exists():
        shutil.copymode(target, beside)
    beside.replace(target)
