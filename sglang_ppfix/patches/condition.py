"""What a tree is that ``apply`` has been at: whole, half, or stock again since.

pip removes and replaces the files of its record. What we added is not in it and
survives an upgrade; what we edited is stock again then.
"""

import re
from enum import Enum, auto

from packaging.version import Version

from . import PatchSetError
from .folder import releases, series
from .in_place import stand_in
from .package import Manifest, Package, digest
from .strict import apply


class Condition(Enum):
    """Of a tree with a manifest."""

    #: Every file is as the diffs make it.
    WHOLE = auto()
    #: A call was killed while it changed file by file.
    HALF = auto()
    #: SGLang was installed anew; what we added is still there, and nothing uses it.
    LEFT_OVER = auto()


def condition(package: Package, manifest: Manifest) -> Condition:
    """Compare a tree with its manifest.

    Raises:
        PatchSetError: somebody else changed a file that we changed.
    """
    found = {path: digest(package.read(path)) for path in manifest.new}
    if manifest.complete and found == manifest.new:
        return Condition.WHOLE
    ours = {path: {text} for path, text in manifest.new.items()}
    for path in manifest.edited:
        ours[path].add(digest(stand_in(path)) or "")
    strange = [p for p in found if found[p] not in {*ours[p], manifest.old[p]}]
    if not manifest.complete and not strange:
        return Condition.HALF
    if not any(found[path] in ours[path] for path in manifest.edited) and not any(
        _is_used(package, path, manifest.edited)
        for path in left_over(package, manifest)
    ):
        return Condition.LEFT_OVER
    changed = strange or [path for path in found if found[path] not in ours[path]]
    raise PatchSetError(
        f"{package.at(min(changed))} was changed since the diffs were applied: install "
        "SGLang anew (pip install --force-reinstall --no-deps), then run this again"
    )


def left_over(package: Package, manifest: Manifest) -> list[str]:
    """Files that we added and that are as we made them."""
    return [
        path
        for path in manifest.added
        if digest(package.read(path)) == manifest.new[path]
    ]


def without_manifest(package: Package, paths: dict[str, bool]) -> list[str]:
    """The same where the manifest was removed by hand: known by their text.

    Args:
        package: one without a manifest.
        paths: those that a series touches, and whether the tree must have them.
    """
    edited = [path for path, there in paths.items() if there]
    return [
        path
        for path, there in paths.items()
        if not there
        and (text := package.read(path)) is not None
        and not _is_used(package, path, edited)
        and any(text == _made(path, release) for release in releases())
    ]


def _is_used(package: Package, path: str, edited: list[str]) -> bool:
    name = re.compile(rf"\b{re.escape(package.at(path).stem)}\b")
    return any(name.search(package.read(other) or "") for other in edited)


def _made(path: str, release: Version) -> str | None:
    """Text of a file that the series of a release adds."""
    diffs = [(mail.path.name, mail.diff) for mail in series(release)]
    return apply(diffs, lambda _: None, only=path).get(path)
