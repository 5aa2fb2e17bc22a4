"""Run the CPU tests of ``upstream_tests/`` on stock, with the plugin, and patched."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from packaging.version import Version

from . import PatchSetError
from .folder import releases
from .installed import apply, copy_of
from .package import Package

#: Directory of CPU tests in SGLang's tree.
CPU = "test/registered/unit"


class Outcome(NamedTuple):
    """What one file of tests gave on one tree.

    Attributes:
        tests: ``Class.method`` of every test.
        failed: the same to the first line of the reason.
        sglang: the package that was tested.
        seconds: without the imports.
    """

    tests: list[str]
    failed: dict[str, str]
    sglang: str
    seconds: float


def upstream_tests(release: Version | None = None) -> Path | None:
    """Folder with the tests; None in an installed wheel, which carries none.

    They are written as the newest release has its classes: None for an older one.
    """
    folder = Path(__file__).resolve().parents[2] / "upstream_tests"
    fits = release is None or Version(release.public) == releases()[0]
    return folder if fits and folder.is_dir() else None


def cpu_tests(folder: Path) -> list[Path]:
    """Files of tests that need no GPU."""
    return sorted((folder / CPU).rglob("test_*.py"))


@contextmanager
def patched(package: Package, release: Version) -> Iterator[Path]:
    """A copy of a package with its series applied, as an entry for ``sys.path``."""
    with tempfile.TemporaryDirectory(prefix="sglang-ppfix-") as work:
        copy = copy_of(package, Path(work))
        apply(copy, release)
        yield Path(work)


def run(test: Path, tree: Path | None = None, plugin: bool = False) -> Outcome:
    """Run a file of tests in an interpreter of its own.

    Args:
        test: the file.
        tree: entry of ``sys.path`` that goes before the installed SGLang.
        plugin: whether the plugin is on; it is off otherwise, wherever it is set.

    Raises:
        PatchSetError: the file could not even be imported.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SGLANG_PPFIX", "SGLANG_IS_IN_CI", "PYTHONPATH"))
    }
    if tree is not None:
        environment["PYTHONPATH"] = str(tree)
    if plugin:
        environment["SGLANG_PPFIX"] = "1"
        # As strict as a server, whatever other plugins this environment has.
        environment["SGLANG_PLUGINS"] = "ppfix"
    child = files(__package__).joinpath("trial_child.py").read_text("utf-8")
    with tempfile.TemporaryDirectory() as work:
        outcome = Path(work) / "outcome.json"
        done = subprocess.run(
            [
                *(sys.executable, "-c", child, str(test), str(outcome)),
                *(["plugins"] if plugin else []),
            ],
            # Not where a folder could be taken for a package.
            cwd=work,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if not outcome.is_file():
            words = done.stderr.strip().splitlines() or ["no output"]
            raise PatchSetError(f"{test.name} does not run: {words[-1]}")
        return Outcome(**json.loads(outcome.read_text(encoding="utf-8")))
