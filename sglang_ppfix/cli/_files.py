"""Files that a verb is asked to write: refused before the work, not after it."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from . import UserError


def check_outputs(files: Mapping[str, Path | str | None]) -> None:
    """Refuse files that cannot be written.

    Args:
        files: option -> what was given; None or ``-`` is no file.

    Raises:
        UserError: one cannot be written.
    """
    for option, given in files.items():
        if given is None or given == "-":
            continue
        path = Path(given)
        if not path.resolve().parent.is_dir():
            raise UserError(f"{option} {path}: its folder does not exist")
        if path.is_dir():
            raise UserError(f"{option} {path}: is a folder")
        if not os.access(path if path.exists() else path.resolve().parent, os.W_OK):
            raise UserError(f"{option} {path}: cannot be written")


@contextmanager
def writing() -> Iterator[None]:
    """A full disk and what else shows only then is one line, too."""
    try:
        yield
    except OSError as error:
        raise UserError(f"a result cannot be written: {error}") from None
