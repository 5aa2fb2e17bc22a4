"""Apply a series to an installed SGLang, and take it out again.

A whole new package folder is built beside the old one, from hard links, and swapped
with it in one step: whenever it is killed, the tree is stock or whole. Where folders
cannot be swapped (layers of a container image, mounts) files are changed where they
lie (``in_place``), and the next call undoes what was not finished.
"""

import shutil
from pathlib import Path

from packaging.version import Version

from . import PatchSetError, in_place, strict
from .condition import Condition, condition, left_over, without_manifest
from .folder import series
from .lock import locked
from .package import MANIFEST, ORIGINALS, OURS, Manifest, Package, digest
from .tree import STAGING, link, swap


class Done(Exception):
    """There is nothing to do; one line."""


def apply(package: Package, release: Version) -> list[str]:
    """Apply the series of a release; returns the paths that changed.

    Raises:
        Done: it is applied already.
        PatchSetError: the tree is not that release as it was published, or is a git
            work tree; nothing was changed.
    """
    with locked(package.folder):
        manifest = _recovered(package)
        if manifest and condition(package, manifest) is Condition.WHOLE:
            raise Done(f"{package.folder} has the change already")
        return _apply(package, release, manifest)


def revert(package: Package) -> list[str]:
    """Take the change out again; returns the paths that changed.

    Raises:
        Done: it is not applied.
        PatchSetError: a file was changed since, or an original is missing; nothing
            was changed.
    """
    with locked(package.folder):
        manifest = _recovered(package)
        if manifest is None:
            raise Done(f"{package.folder} is stock already")
        if condition(package, manifest) is Condition.LEFT_OVER:
            paths = left_over(package, manifest)
            _drop(package, paths)
            return paths
        _restore(package, manifest)
        return sorted(manifest.new)


def recover(package: Package) -> None:
    """Remove or undo what a killed call left behind."""
    with locked(package.folder):
        _recovered(package)


def copy_of(package: Package, folder: Path) -> Package:
    """A copy of a package in another folder, where it can be changed safely.

    From hard links where that can be; nothing here writes into a file that exists.
    """
    target = folder / package.folder.name
    shutil.copytree(package.folder, target, symlinks=True, copy_function=link)
    return Package(target)


def _apply(package: Package, release: Version, stale: Manifest | None) -> list[str]:
    """Apply to a stock tree, which may hold what an upgrade left of an earlier call."""
    _refuse_checkout(package)
    diffs = [(mail.path.name, mail.diff) for mail in series(release)]
    leftovers = (
        left_over(package, stale)
        if stale
        else without_manifest(package, strict.touched(diffs))
    )
    # Refused or not: nothing is touched before the whole series fits.
    old = {
        path: None if path in leftovers else package.read(path)
        for path in strict.touched(diffs)
    }
    new = strict.apply(diffs, old.get)
    for path, text in new.items():
        compile(text, path, "exec")
    _drop(package, leftovers)
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
    finished = {f"sglang/{OURS}/{MANIFEST}": manifest.text()}
    if not swap(package, {**new, **originals, **finished}, drop=()):
        in_place.change(package, manifest, originals, new)
    return sorted(new)


def _recovered(package: Package) -> Manifest | None:
    """Clean up after a killed call; the manifest of what is applied."""
    staging = package.folder.parent / STAGING
    if staging.exists():
        shutil.rmtree(staging)
    manifest = package.manifest()
    if manifest is None:
        # Originals that were kept for a change that never began, or has been undone.
        shutil.rmtree(package.folder / OURS, ignore_errors=True)
    elif condition(package, manifest) is Condition.HALF:
        _restore(package, manifest)
        return None
    else:
        in_place.tidy(package)
    return manifest


def _restore(package: Package, manifest: Manifest) -> None:
    originals = {}
    for path in manifest.edited:
        kept = package.original(path)
        text = kept.read_bytes().decode() if kept.is_file() else None
        if digest(text) != manifest.old[path] or text is None:
            raise PatchSetError(f"the original {kept} is missing or was changed")
        originals[path] = text
    if not swap(package, originals, drop=[*manifest.added, f"sglang/{OURS}"]):
        in_place.undo(package, manifest, originals)


def _drop(package: Package, paths: list[str]) -> None:
    """Remove files of ours that nothing uses, and what was kept with them."""
    for path in paths:
        package.at(path).unlink()
    # The manifest first: what is left without one is not looked at again.
    (package.folder / OURS / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(package.folder / OURS, ignore_errors=True)


def _refuse_checkout(package: Package) -> None:
    for folder in package.folder.resolve().parents:
        if (folder / ".git").exists() and (folder / "python" / "sglang").is_dir():
            raise PatchSetError(
                f"{package.folder} lies in a git checkout: use 'sglang-ppfix patches "
                "export' and git am"
            )
