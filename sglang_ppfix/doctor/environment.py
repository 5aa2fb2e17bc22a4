"""SGLang: what is installed, and where."""

import ast
from collections.abc import Iterator
from pathlib import Path

from sglang_ppfix.compat.source import PACKAGE, SourceError, SourceTree

from .mend import pip, reinstall
from .release import range_or_none
from .report import Check, State
from .surroundings import Surroundings


def sglang(surroundings: Surroundings) -> Iterator[Check]:
    """SGLang's metadata and its package: both there, and of one release."""
    release, package = surroundings.release, surroundings.package
    install = pip("install", f"sglang{range_or_none() or ''}")
    if surroundings.release_error is not None:
        yield Check("sglang", State.FAIL, surroundings.release_error, install)
    elif release is None and package is None:
        yield Check("sglang", State.FAIL, "SGLang is not installed", install)
    elif release is None:
        yield Check(
            "sglang",
            State.FAIL,
            f"{package} is importable, but has no metadata: its release is unknown",
            install,
        )
    elif package is None:
        yield Check(
            "sglang",
            State.FAIL,
            f"sglang {release} is installed, but no package sglang is importable",
            reinstall(f"sglang=={release}"),
        )
    else:
        written = _written_version(package)
        if written is not None and written != str(release):
            yield Check(
                "sglang",
                State.FAIL,
                f"metadata says {release}, but {package} is {written}: two "
                "installations are mixed",
                reinstall(f"sglang=={release}"),
            )
            return
        yield Check("sglang", State.OK, f"sglang {release}, {package}")


def _written_version(package: Path) -> str | None:
    """``__version__`` in ``sglang/_version.py``, which a wheel carries."""
    try:
        tree = SourceTree(package).module(f"{PACKAGE}._version")
    except SourceError:
        return None
    for node in tree.body if tree is not None else ():
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and any(isinstance(t, ast.Name) and t.id == "version" for t in node.targets)
        ):
            return str(node.value.value)
    return None
