"""Swap two directories in one step, where the kernel and the file system can."""

import ctypes
import errno
import os
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
# What kernels and file systems answer that cannot: old kernels, network file systems,
# the read-only layers of a container image, whose directories cannot be renamed, and
# directories that something is mounted on.
_CANNOT = {errno.ENOSYS, errno.EINVAL, errno.EXDEV, errno.EOPNOTSUPP, errno.EBUSY}


def exchange(one: Path, other: Path) -> bool:
    """Swap two directories of one file system, with ``renameat2`` of Linux.

    Returns:
        False where it cannot be done; nothing was changed then.

    Raises:
        OSError: it may not be done, or one of them does not exist.
    """
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    done = renameat2(
        *(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other)),
        _RENAME_EXCHANGE,
    )
    if done == 0:
        return True
    code = ctypes.get_errno()
    if code in _CANNOT:
        return False
    raise OSError(code, os.strerror(code), str(one))
