"""Would ``python -m sglang...``, started here, import something else than installed?"""

import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

from .report import Check, State
from .surroundings import Surroundings

#: Packages without which a server with the plugin does not start.
PACKAGES = ("sglang", "torch", "transformers", "wrapt", "sgl_kernel")

_NAME = "working_directory"


def working_directory(surroundings: Surroundings) -> Iterator[Check]:
    """One line for each file or folder here that can hide a package."""
    here = surroundings.working_directory
    found = [check for name in PACKAGES for check in _shadow(here, name)]
    if not found:
        text = f"nothing in {here} hides {', '.join(PACKAGES)}"
        found.append(Check(_NAME, State.OK, text))
    yield from found


def origin(name: str, aside: Path) -> Path | None:
    """File behind ``import name``, which is not imported.

    Args:
        name: of a top-level package or module.
        aside: entry of ``sys.path`` that counts only where no other has the package:
            ``python -m`` puts the working directory there.

    Returns:
        None where there is none, or only a folder without ``__init__.py``.
    """
    paths = [entry for entry in sys.path if Path(entry) != aside]
    for entries in (paths, sys.path):
        for finder in sys.meta_path:
            path = entries if finder is PathFinder else None
            spec = finder.find_spec(name, path)
            if spec is not None and spec.has_location and spec.origin:
                return Path(spec.origin)
    return None


def _shadow(here: Path, name: str) -> Iterator[Check]:
    folder, module = here / name, here / f"{name}.py"
    initial = folder / "__init__.py"
    fix = f"cd {here.parent}"
    if initial.is_file() and _same(initial, origin(name, here)):
        return  # the working directory is where the package is installed
    if module.is_file() or initial.is_file():
        found = folder if initial.is_file() else module
        text = f"{found} would be imported instead of {name}"
        yield Check(_NAME, State.FAIL, text, fix)
    elif folder.is_dir():
        # A namespace package: it loses against a regular one on sys.path, but wins
        # against an editable installation.
        text = f"the folder {folder} has the name of the package and can hide it"
        yield Check(_NAME, State.WARN, text, fix)


def _same(path: Path, other: Path | None) -> bool:
    return other is not None and other.exists() and path.samefile(other)
