"""One call at a time on a package: a second would remove the first one's staging."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

#: Beside the package; no importable name. Gone when nobody is at work.
LOCK = ".sglang-ppfix-lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Wait until nobody else is at work on a package folder.

    The kernel lets go of the lock when its holder is killed; the file that stays then
    is taken over.
    """
    path = folder.parent / LOCK
    while True:
        with path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # The one before us may have removed the file that we waited for.
            if not _is_at(file, path):
                continue
            try:
                yield
            finally:
                path.unlink()
            return


def _is_at(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
