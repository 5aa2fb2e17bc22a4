"""The package folder of an installed SGLang, and what of ours is in it."""

import hashlib
import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from packaging.version import InvalidVersion, Version

from . import PatchSetError

#: Folder in the package that holds the manifest and the originals.
OURS = "_ppfix_patches"
MANIFEST = "manifest.json"
ORIGINALS = "originals"


class Manifest(NamedTuple):
    """What ``apply`` did.

    Attributes:
        release: SGLang's release.
        old: path to digest of every original; None for a file that was not there.
        new: path to digest of every file as the diffs make it.
        complete: False while files are changed one by one.
    """

    release: str
    old: Mapping[str, str | None]
    new: Mapping[str, str]
    complete: bool = True

    @property
    def added(self) -> list[str]:
        """Files that were not there before."""
        return sorted(path for path in self.new if self.old[path] is None)

    @property
    def edited(self) -> list[str]:
        """Files that were."""
        return sorted(path for path in self.new if self.old[path] is not None)

    def text(self) -> str:
        """As it is stored."""
        return json.dumps(self._asdict(), indent=1, sort_keys=True) + "\n"


class Package:
    """An installed SGLang.

    Attributes:
        folder: the folder ``sglang``; paths are relative to its parent, as in a wheel.
    """

    def __init__(self, folder: Path) -> None:
        if not (folder / "srt").is_dir():
            raise PatchSetError(f"{folder} is not a package folder of sglang")
        self.folder = folder

    def at(self, path: str) -> Path:
        """Place of a file by its path in the wheel."""
        return self.folder.parent / path

    def read(self, path: str) -> str | None:
        """Text of a file, None where there is none."""
        try:
            return self.at(path).read_bytes().decode()
        except FileNotFoundError:
            return None

    def release(self) -> Version:
        """Release, by the metadata that lies beside the package.

        Raises:
            PatchSetError: there is none, or it cannot be read.
        """
        found = sorted(self.folder.parent.glob("sglang-*.dist-info"))
        if len(found) != 1:
            raise PatchSetError(
                f"{self.folder.parent} holds {len(found)} sglang-*.dist-info folders, "
                "expected 1: give --release, and for a checkout use export and git am"
            )
        text = found[0].name.removeprefix("sglang-").removesuffix(".dist-info")
        try:
            return Version(text)
        except InvalidVersion:
            raise PatchSetError(f"sglang has the release {text!r}") from None

    def manifest(self) -> Manifest | None:
        """What was applied, None for stock.

        Raises:
            PatchSetError: it cannot be read.
        """
        path = self.folder / OURS / MANIFEST
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return Manifest(**content)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise PatchSetError(f"{path} cannot be read: {error}") from error

    def original(self, path: str) -> Path:
        """Where ``apply`` keeps the original of a file."""
        return self.folder / OURS / ORIGINALS / path


def digest(text: str | None) -> str | None:
    """Digest of a file's text, None where there is no file."""
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()


def installed() -> Package:
    """The SGLang that this interpreter would import; it is not imported.

    Raises:
        PatchSetError: there is none.
    """
    spec = importlib.util.find_spec("sglang")
    if spec is None or not spec.submodule_search_locations or spec.origin is None:
        raise PatchSetError("this interpreter has no sglang: give --package FOLDER")
    return Package(Path(spec.origin).parent)
