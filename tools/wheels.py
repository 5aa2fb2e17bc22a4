"""SGLang's wheels, each downloaded once into a cache outside the repository.

``SGLANG_PPFIX_CACHE`` moves the cache. Wheels are read where they lie, as zip files.
"""

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from packaging.version import Version

from sglang_ppfix.compat.source import SourceTree

# The source is the same in every wheel of a release: take those of one platform, so
# that any interpreter on any machine can read them.
_PLATFORMS = ("manylinux_2_34_x86_64", "manylinux_2_28_x86_64", "manylinux2014_x86_64")
_PYTHON = "3.11"


class Offline(Exception):
    """The registry cannot be reached, or has no such release; one line."""


def cache() -> Path:
    """Folder that tests and tools keep downloads in."""
    folder = os.environ.get("SGLANG_PPFIX_CACHE") or "~/.cache/sglang-ppfix"
    return Path(folder).expanduser()


def fetch(release: Version) -> Path:
    """Wheel of a release, from the cache or from the registry.

    Raises:
        Offline: it is in neither.
    """
    folder = cache() / "wheels"
    for path in folder.glob(f"sglang-{release}-*.whl"):
        return path
    return _download(f"sglang=={release}", folder)


def newest() -> Version:
    """The newest release of the registry, pre-releases aside; its wheel is not fetched.

    Raises:
        Offline: the registry cannot be reached.
    """
    with tempfile.TemporaryDirectory() as work:
        options = ("--dry-run", "--ignore-installed", "--report", "-", "--target", work)
        report = _pip("install", *options, "sglang")
    (item,) = json.loads(report)["install"]
    return Version(item["metadata"]["version"])


def tree(release: Version) -> SourceTree:
    """Source of a release.

    Raises:
        Offline: its wheel is neither in the cache nor in the registry.
    """
    return SourceTree(zipfile.Path(fetch(release), "sglang/"))


def _download(requirement: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    # Beside its place: several test processes may want the same wheel at once.
    with tempfile.TemporaryDirectory(dir=folder) as work:
        _pip("download", "--dest", work, requirement)
        (wheel,) = Path(work).glob("*.whl")
        path = folder / wheel.name
        wheel.replace(path)
    return path


def _pip(verb: str, *arguments: str) -> str:
    """Run pip for our platform and for one requirement alone; returns its output."""
    command = [
        *(sys.executable, "-m", "pip", verb, "--quiet", "--no-deps"),
        *("--only-binary", ":all:", "--implementation", "cp"),
        *("--python-version", _PYTHON),
        *(word for name in _PLATFORMS for word in ("--platform", name)),
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        words = done.stderr.strip().splitlines() or ["pip gave no reason"]
        raise Offline(f"pip {verb} {arguments[-1]}: {words[-1]}")
    return done.stdout
