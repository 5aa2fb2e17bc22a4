"""Torch: what can be seen of it without importing it.

An import takes seconds, and could open a CUDA context. A torch that only fails while
it is imported, as for want of a driver's library, is not seen here; the text says so.
"""

import ast
import csv
from collections.abc import Iterator
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from packaging.requirements import Requirement

from .mend import pip, reinstall
from .report import Check, State
from .requirements import absent, applying
from .shadows import origin
from .surroundings import Surroundings

_NAME = "torch"


def torch(surroundings: Surroundings) -> Iterator[Check]:
    """Torch's metadata against SGLang's pin, its files, and what it requires."""
    if surroundings.release is None:
        return
    wanted = _pin()
    try:
        found = metadata.version("torch")
    except metadata.PackageNotFoundError:
        text = "torch is not installed: SGLang does not start without it"
        yield Check(_NAME, State.FAIL, text, pip("install", str(wanted or "torch")))
        return
    initial = origin("torch", surroundings.working_directory)
    damage = _damage(initial)
    if damage is not None:
        text = f"torch {found} is broken: {damage}"
        yield Check(_NAME, State.FAIL, text, reinstall(f"torch=={found}"))
        return
    if wanted is not None and not wanted.specifier.contains(found, prereleases=True):
        text = f"torch {found}, but sglang {surroundings.release} asks for {wanted}"
        yield Check(_NAME, State.WARN, text, pip("install", str(wanted)))
        return
    # Libraries of CUDA come as distributions of their own. Their releases are pip's
    # business: torch is often run with others than it names.
    lacking = [str(each) for each in absent(metadata.requires("torch") or ())]
    if lacking:
        text = f"torch {found} needs {', '.join(lacking)}"
        yield Check(_NAME, State.WARN, text, pip("install", *lacking))
        return
    text = f"torch {found}: metadata and libraries are whole; it was not imported"
    yield Check(_NAME, State.OK, text)


def _damage(initial: Path | None) -> str | None:
    """What is wrong with the files behind ``import torch``; None if nothing is seen."""
    if initial is None:
        return "no package torch is importable"
    if initial.name != "__init__.py":
        return f"{initial} is not the package"
    folder, installed = initial.parent, metadata.distribution("torch")
    version = _version(folder / "version.py")
    if version is None:
        return f"{folder / 'version.py'} does not say which version it is"
    if _public(version) != _public(installed.version):
        return f"{folder} is {version}: two installations are mixed"
    # The suffixes are those that this interpreter loads: another Python's do not count.
    if not any((folder / f"_C{suffix}").is_file() for suffix in EXTENSION_SUFFIXES):
        return f"{folder} has no extension module _C for this interpreter"
    for path, size in _libraries(installed):
        if not path.is_file() or path.stat().st_size != size:
            return f"{path} is missing or not whole"
    return None


def _libraries(installed: metadata.Distribution) -> Iterator[tuple[Path, int]]:
    """Shared libraries that the installer wrote, with their sizes.

    Elsewhere, as in conda, they can lie outside the package: only what is listed is
    looked for.
    """
    lines = (installed.read_text("RECORD") or "").splitlines()
    listed = (line for line in lines if line.startswith(("torch/_C", "torch/lib/")))
    for row in csv.reader(listed):
        path, size = row[0], row[-1]
        if (path.endswith((".so", ".dylib")) or ".so." in path) and size.isdecimal():
            yield Path(str(installed.locate_file(path))), int(size)


def _version(path: Path) -> str | None:
    """``__version__`` as the file assigns it."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and any(
                isinstance(t, ast.Name) and t.id == "__version__" for t in node.targets
            )
        ):
            return str(node.value.value)
    return None


def _public(version: str) -> str:
    """Without the local part: the registry's metadata lacks ``+cu130``."""
    return version.partition("+")[0]


def _pin() -> Requirement | None:
    """What SGLang asks for."""
    for requirement in applying(metadata.requires("sglang") or ()):
        if requirement.name == "torch":
            return requirement
    return None
