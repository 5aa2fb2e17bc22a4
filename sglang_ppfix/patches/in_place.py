"""Change files where they lie, all of them at one moment.

No order of single writes would do: the diffs rename a field that one file defines and
another one fills, so a tree with one of the two changed does not start. Each file that
changes becomes a stand-in first, which runs the old text, or the new one where the
switch exists. To create or remove that file is the moment.
"""

import shutil
from collections.abc import Mapping

from .package import MANIFEST, ORIGINALS, OURS, Manifest, Package
from .tree import write

_NEW = "new"
_SWITCH = "switch"
_STAGING = "staging"

_STAND_IN = '''\
"""Being changed by "sglang-ppfix patches"; acts as the file before or after."""

import pathlib

_ours = pathlib.Path(__file__).parents[{depth}] / "{ours}"
_side = "{new}" if (_ours / "{switch}").exists() else "{originals}"
_file = _ours / _side / "{path}"
exec(compile(_file.read_bytes(), str(_file), "exec", dont_inherit=True))
'''


def stand_in(path: str) -> str:
    """Text that stands for a file while files change."""
    return _STAND_IN.format(
        **{"depth": path.count("/") - 1, "path": path, "ours": OURS},
        **{"new": _NEW, "originals": ORIGINALS, "switch": _SWITCH},
    )


def change(
    package: Package,
    manifest: Manifest,
    originals: Mapping[str, str],
    new: Mapping[str, str],
) -> None:
    """From stock to whole.

    Args:
        package: a stock one.
        manifest: what this does.
        originals: where they are kept, and what they are.
        new: text of every file that is changed or added.
    """
    _write(package, originals)
    _write(package, {_new(path): new[path] for path in manifest.edited})
    # From here on a killed call is known by what it left.
    _write(package, {_manifest(): manifest._replace(complete=False).text()})
    _write(package, {path: new[path] for path in manifest.added})
    _write(package, {path: stand_in(path) for path in manifest.edited})
    _write(package, {_switch(): ""})
    _write(package, {path: new[path] for path in manifest.edited})
    _write(package, {_manifest(): manifest.text()})
    tidy(package)


def undo(package: Package, manifest: Manifest, originals: Mapping[str, str]) -> None:
    """From whole, or from where a killed call stopped, to stock.

    Args:
        package: a whole one, or one with an unfinished manifest.
        manifest: what was done to it.
        originals: text of every file that was there before.
    """
    if manifest.complete:
        _write(package, {_new(path): _text(package, path) for path in manifest.edited})
        _write(package, {_switch(): ""})
        _write(package, {_manifest(): manifest._replace(complete=False).text()})
    _write(package, {path: stand_in(path) for path in manifest.edited})
    package.at(_switch()).unlink(missing_ok=True)
    _write(package, originals)
    for path in manifest.added:
        package.at(path).unlink(missing_ok=True)
    # The manifest first: what is left without one is not looked at again.
    package.at(_manifest()).unlink()
    shutil.rmtree(package.folder / OURS)


def tidy(package: Package) -> None:
    """Remove what a whole tree does not need."""
    package.at(_switch()).unlink(missing_ok=True)
    for name in (_NEW, _STAGING):
        shutil.rmtree(package.folder / OURS / name, ignore_errors=True)


def _write(package: Package, files: Mapping[str, str]) -> None:
    # Within the package: what lies beside it may be on another file system.
    staging = package.folder / OURS / _STAGING
    staging.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        write(package.at(path), text, staging)


def _text(package: Package, path: str) -> str:
    text = package.read(path)
    assert text is not None
    return text


def _new(path: str) -> str:
    return f"sglang/{OURS}/{_NEW}/{path}"


def _switch() -> str:
    return f"sglang/{OURS}/{_SWITCH}"


def _manifest() -> str:
    return f"sglang/{OURS}/{MANIFEST}"
