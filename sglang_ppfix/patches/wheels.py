"""SGLang's wheels, each downloaded once, in the cache that tools and tests share."""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from packaging.version import Version

from . import PatchSetError

# The Python source is the same in every wheel of a release: take those of one
# platform, so that any interpreter on any machine can read them.
_PLATFORMS = ("manylinux_2_34_x86_64", "manylinux_2_28_x86_64", "manylinux2014_x86_64")


def fetch(release: Version) -> Path:
    """Wheel of a release, from the cache or from the registry.

    ``SGLANG_PPFIX_CACHE`` moves the cache.

    Raises:
        PatchSetError: it cannot be had.
    """
    cache = os.environ.get("SGLANG_PPFIX_CACHE") or "~/.cache/sglang-ppfix"
    folder = Path(cache).expanduser() / "wheels"
    for path in folder.glob(f"sglang-{release}-*.whl"):
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
                *("--only-binary", ":all:", "--implementation", "cp"),
                *("--python-version", "3.11", "--dest", work),
                *(word for name in _PLATFORMS for word in ("--platform", name)),
                f"sglang=={release}",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        wheels = list(Path(work).glob("*.whl"))
        if done.returncode or not wheels:
            words = done.stderr.strip().splitlines() or ["pip gave no reason"]
            raise PatchSetError(f"sglang {release} cannot be downloaded: {words[-1]}")
        path = folder / wheels[0].name
        wheels[0].replace(path)
    return path


class WheelTree:
    """The files of a wheel, read where they lie."""

    def __init__(self, wheel: Path) -> None:
        self._zip = zipfile.ZipFile(wheel)
        self._names = set(self._zip.namelist())

    def read(self, path: str) -> str | None:
        """Text of a file, None where there is none."""
        if path not in self._names:
            return None
        return self._zip.read(path).decode()
