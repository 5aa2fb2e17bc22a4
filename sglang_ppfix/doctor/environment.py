"""Interpreter, plugin, SGLang and torch: what is installed, and where."""

import ast
import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement

from sglang_ppfix import __version__
from sglang_ppfix.compat.release import DISTRIBUTION, supported_range
from sglang_ppfix.compat.source import PACKAGE, SourceError, SourceTree

from .report import Check, State
from .surroundings import Surroundings, pip


def python(surroundings: Surroundings) -> Iterator[Check]:
    """Which interpreter this is: the one that must start the server, too."""
    text = f"{platform.python_version()}, {sys.executable}"
    yield Check("python", State.OK, text)


def plugin(surroundings: Surroundings) -> Iterator[Check]:
    """The plugin's own metadata and dependencies."""
    where = Path(__file__).parents[1]
    try:
        requirements = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        yield Check(
            "plugin",
            State.FAIL,
            f"{where} is importable, but {DISTRIBUTION} is not installed: SGLang finds "
            "plugins by metadata",
            pip("install", "--no-deps", str(where.parent)),
        )
        return
    for requirement in _broken(requirements):
        yield Check(
            "plugin",
            State.FAIL,
            f"{DISTRIBUTION} needs {requirement}",
            pip("install", str(requirement)),
        )
        return
    yield Check("plugin", State.OK, f"{DISTRIBUTION} {__version__}, {where}")


def sglang(surroundings: Surroundings) -> Iterator[Check]:
    """SGLang's metadata and its package: both there, and of one release."""
    release, package = surroundings.release, surroundings.package
    install = pip("install", f"sglang{supported_range_or_nothing()}")
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
            pip("install", "--force-reinstall", "--no-deps", f"sglang=={release}"),
        )
    else:
        written = _written_version(package)
        if written is not None and written != str(release):
            yield Check(
                "sglang",
                State.FAIL,
                f"metadata says {release}, but {package} is {written}: two "
                "installations are mixed",
                pip("install", "--force-reinstall", "--no-deps", f"sglang=={release}"),
            )
            return
        yield Check("sglang", State.OK, f"sglang {release}, {package}")


def torch(surroundings: Surroundings) -> Iterator[Check]:
    """Torch's metadata against SGLang's pin; torch itself is not imported."""
    if surroundings.release is None:
        return
    try:
        found = metadata.version("torch")
    except metadata.PackageNotFoundError:
        found = None
    wanted = _requirement_of("sglang", "torch")
    if found is None or find_spec("torch") is None:
        fix = pip("install", str(wanted or "torch"))
        yield Check("torch", State.WARN, "torch is not installed: SGLang needs it", fix)
    elif wanted is not None and not wanted.specifier.contains(found, prereleases=True):
        yield Check(
            "torch",
            State.WARN,
            f"torch {found}, but sglang {surroundings.release} asks for {wanted}",
            pip("install", str(wanted)),
        )
    else:
        yield Check("torch", State.OK, f"torch {found} (metadata only, not imported)")


def working_directory(surroundings: Surroundings) -> Iterator[Check]:
    """Whether ``python -m sglang...`` started here would import something else."""
    here = surroundings.working_directory
    folder, module = here / PACKAGE, here / f"{PACKAGE}.py"
    fix = f"cd {here.parent}"
    if surroundings.package is not None and _same(folder, surroundings.package):
        yield Check("working_directory", State.OK, f"{here} holds the package itself")
    elif module.is_file() or (folder / "__init__.py").is_file():
        found = module if module.is_file() else folder
        yield Check(
            "working_directory",
            State.FAIL,
            f"{found} would be imported instead of SGLang",
            fix,
        )
    elif folder.is_dir():
        # A namespace package: it loses against a regular one on sys.path, but wins
        # against an editable installation.
        yield Check(
            "working_directory",
            State.WARN,
            f"the folder {folder} has the name of the package and can hide it",
            fix,
        )
    else:
        yield Check("working_directory", State.OK, f"nothing in {here} hides SGLang")


def supported_range_or_nothing() -> str:
    """The supported range; empty where the plugin's own metadata is missing."""
    try:
        return str(supported_range())
    except metadata.PackageNotFoundError:
        return ""


def _broken(requirements: list[str]) -> Iterator[Requirement]:
    """Requirements of ours, extras aside, that are not met."""
    for line in requirements:
        requirement = Requirement(line)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            found = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            yield requirement
            continue
        if not requirement.specifier.contains(found, prereleases=True):
            yield requirement


def _requirement_of(distribution: str, name: str) -> Requirement | None:
    for line in metadata.requires(distribution) or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if requirement.name == name and (not marker or marker.evaluate({"extra": ""})):
            return requirement
    return None


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


def _same(a: Path, b: Path) -> bool:
    return a.exists() and b.exists() and a.samefile(b)
