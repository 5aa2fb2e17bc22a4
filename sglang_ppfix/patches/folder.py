"""Where the diffs lie, and in which order they apply."""

from pathlib import Path

from packaging.version import InvalidVersion, Version

from . import PatchSetError
from .mail import Mail, read_mail

PREFIX = "sglang-"
ORDER = "series"


def root() -> Path:
    """Folder with one folder per release: in a checkout or in an installed wheel.

    Raises:
        PatchSetError: neither is there.
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package.parent / "patches", package / "_patches"):
        if any(folder.glob(f"{PREFIX}*/{ORDER}")):
            return folder
    raise PatchSetError("this installation of sglang-ppfix carries no patches")


def releases() -> list[Version]:
    """Releases with a series, newest first."""
    found = []
    for path in root().glob(f"{PREFIX}*/{ORDER}"):
        try:
            found.append(Version(path.parent.name.removeprefix(PREFIX)))
        except InvalidVersion:
            continue
    return sorted(found, reverse=True)


def series(release: Version) -> list[Mail]:
    """The diffs of a release, in the order in which they apply.

    A line of the order file is a path relative to it; ``#`` starts a comment. A local
    build (``0.5.23+cu130``) is that of its release: the applier tells if it is not.

    Raises:
        PatchSetError: there is no series for the release, or a file is missing.
    """
    folder = root() / f"{PREFIX}{release.public}"
    order = folder / ORDER
    if not order.is_file():
        known = ", ".join(map(str, releases()))
        raise PatchSetError(f"no series for sglang {release}; there is one for {known}")
    lines = (line.split("#")[0].strip() for line in order.read_text().splitlines())
    return [read_mail(folder / line) for line in lines if line]
