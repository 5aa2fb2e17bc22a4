"""Apply a series to an installed SGLang, and take it out again.

A whole new package folder is built beside the old one, from hard links, and swapped
with it in one step: whenever it is killed, the tree is stock or whole. Where folders
cannot be swapped (layers of a container image) files are changed one by one, the
originals being kept first; the next call then undoes what was not finished.
"""

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from packaging.version import Version

from . import PatchSetError, strict
from .exchange import exchange
from .folder import series
from .package import MANIFEST, ORIGINALS, OURS, Manifest, Package, digest

#: Beside the package, so that it is on the same file system; no importable name.
_STAGING = ".sglang-ppfix-staging"
_MANIFEST = f"sglang/{OURS}/{MANIFEST}"


class Done(Exception):
    """There is nothing to do; one line."""


def apply(package: Package, release: Version) -> list[str]:
    """Apply the series of a release; returns the paths that changed.

    Raises:
        Done: it is applied already.
        PatchSetError: the tree is not that release as it was published, or is a git
            work tree; nothing was changed.
    """
    recover(package)
    if package.manifest() is not None:
        raise Done(f"{package.folder} has the change already")
    _refuse_checkout(package)
    diffs = [(mail.path.name, mail.diff) for mail in series(release)]
    new = strict.apply(diffs, package.read)
    for path, text in new.items():
        compile(text, path, "exec")
    old = {path: package.read(path) for path in new}
    manifest = Manifest(
        str(release),
        {path: digest(text) for path, text in old.items()},
        {path: digest(text) or "" for path, text in new.items()},
    )
    originals = {
        f"sglang/{OURS}/{ORIGINALS}/{path}": text
        for path, text in old.items()
        if text is not None
    }
    finished = {_MANIFEST: manifest.text()}
    if not _swap(package, {**new, **originals, **finished}, drop=()):
        # One by one: before the first file changes, its original is kept, and the
        # manifest says that this is not finished.
        unfinished = {_MANIFEST: manifest._replace(complete=False).text()}
        _one_by_one(package, originals, unfinished, new, finished)
    return sorted(new)


def revert(package: Package) -> list[str]:
    """Take the change out again; returns the paths that changed.

    Raises:
        Done: it is not applied.
        PatchSetError: a file was changed since, or an original is missing; nothing
            was changed.
    """
    recover(package)
    manifest = package.manifest()
    if manifest is None:
        raise Done(f"{package.folder} is stock already")
    for path, expected in manifest.new.items():
        if digest(package.read(path)) != expected:
            raise PatchSetError(
                f"{package.at(path)} was changed since the diffs were applied (an "
                f"upgrade?): remove {package.folder / OURS} if SGLang was reinstalled"
            )
    _restore(package, manifest)
    return sorted(manifest.new)


def recover(package: Package) -> None:
    """Remove or undo what a killed call left behind."""
    staging = package.folder.parent / _STAGING
    if staging.exists():
        shutil.rmtree(staging)
    manifest = package.manifest()
    if manifest is None:
        # Originals that were kept for a change that never began, or has been undone.
        shutil.rmtree(package.folder / OURS, ignore_errors=True)
    elif not manifest.complete:
        _restore(package, manifest)


def copy_of(package: Package, folder: Path) -> Package:
    """A copy of a package in another folder, where it can be changed safely.

    From hard links where that can be; nothing here writes into a file that exists.
    """
    target = folder / package.folder.name
    shutil.copytree(package.folder, target, symlinks=True, copy_function=_link)
    return Package(target)


def _restore(package: Package, manifest: Manifest) -> None:
    originals = {}
    for path, expected in manifest.old.items():
        if expected is None:
            continue
        kept = package.original(path)
        text = kept.read_bytes().decode() if kept.is_file() else None
        if digest(text) != expected or text is None:
            raise PatchSetError(f"the original {kept} is missing or was changed")
        originals[path] = text
    added = [path for path, expected in manifest.old.items() if expected is None]
    if not _swap(package, originals, drop=[*added, f"sglang/{OURS}"]):
        unfinished = {_MANIFEST: manifest._replace(complete=False).text()}
        _one_by_one(package, unfinished, originals)
        for path in added:
            package.at(path).unlink(missing_ok=True)
        # The manifest first: what is left without one is not looked at again.
        (package.folder / OURS / MANIFEST).unlink()
        shutil.rmtree(package.folder / OURS)


def _swap(package: Package, files: Mapping[str, str], drop: Iterable[str]) -> bool:
    """Build the folder anew and swap; False where that cannot be done."""
    staging = package.folder.parent / _STAGING
    built = staging / package.folder.name
    staging.mkdir()
    dropped = {package.at(path) for path in drop}

    def left_out(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if Path(folder, name) in dropped]

    shutil.copytree(
        *(package.folder, built),
        symlinks=True,
        ignore=left_out,
        copy_function=_link,
    )
    _write(built, files, staging)
    swapped = exchange(built, package.folder)
    shutil.rmtree(staging)
    return swapped


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # no hard links here, or too many of this file
        shutil.copy2(source, target, follow_symlinks=False)


def _one_by_one(package: Package, *steps: Mapping[str, str]) -> None:
    """Write files in place, one step after the other."""
    staging = package.folder.parent / _STAGING
    staging.mkdir()
    for files in steps:
        _write(package.folder, files, staging)
    shutil.rmtree(staging)


def _write(folder: Path, files: Mapping[str, str], staging: Path) -> None:
    """Write files by their paths in the wheel, each in one step.

    A new file every time: writing into a hard link would change the other tree.
    """
    for path, text in files.items():
        target = folder.parent / path
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = staging / "file"
        with beside.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, beside)
        beside.replace(target)


def _refuse_checkout(package: Package) -> None:
    for folder in package.folder.resolve().parents:
        if (folder / ".git").exists() and (folder / "python" / "sglang").is_dir():
            raise PatchSetError(
                f"{package.folder} lies in a git checkout: use 'sglang-ppfix patches "
                "export' and git am"
            )
