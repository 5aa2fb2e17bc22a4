"""Other SGLang releases over the one environment that holds the newest.

    python tools/overlays.py 0.5.11 0.5.17    # make them, print their PYTHONPATH

A release and the transformers that it pins lie in folders of their own, in front on
``PYTHONPATH``; torch and everything else comes from the environment. Enough for the
lab, which runs no kernels. ``requirements/overlays.json`` says what each one needs.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import wheels
from packaging.version import Version

from sglang_ppfix.lab.launch import ENTRY_A_GLOBAL_RANK, cores_of_ranks

ROOT = Path(__file__).parents[1]
RECIPES = ROOT / "requirements" / "overlays.json"


def main() -> int:
    """Entry point; returns the exit status."""
    try:
        for text in sys.argv[1:]:
            print(text, python_path(Version(text)))
    except wheels.Offline as error:
        print(f"overlays: {error}", file=sys.stderr)
        return 2
    return 0


def environment(release: Version) -> dict[str, str]:
    """Environment variables with which a lab server is of this release.

    Raises:
        Offline: a package is neither in the cache nor in the registry.
    """
    path = [python_path(release), os.environ.get("PYTHONPATH", "")]
    values = {"PYTHONPATH": os.pathsep.join(filter(None, path))}
    if release < ENTRY_A_GLOBAL_RANK:
        # The lab asks the release of its own process, which is the newest.
        values["SGLANG_CPU_OMP_THREADS_BIND"] = cores_of_ranks(1, release)
    return values


def python_path(release: Version) -> str:
    """Folders of an overlay, made where they are missing; empty for the base."""
    content = json.loads(RECIPES.read_text("utf-8"))
    recipe: dict[str, Any] = content["overlays"][str(release)]
    folders = [str(ROOT / "tools" / "stubs")] if recipe["stubs"] else []
    if str(release) != content["base"]:
        folders.append(_folder([str(wheels.fetch(release))], f"sglang-{release}"))
    if recipe["packages"]:
        name = "-".join(recipe["packages"]).replace("==", "-")
        folders.append(_folder(recipe["packages"], name))
    return os.pathsep.join(folders)


def _folder(packages: list[str], name: str) -> str:
    """Folder with these packages and nothing that they require."""
    overlays = wheels.cache() / "overlays"
    folder = overlays / name
    if folder.is_dir():
        return str(folder)
    overlays.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=overlays) as work:
        target = Path(work) / "target"
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"),
                *("--no-compile", "--target", str(target), *packages),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            words = done.stderr.strip().splitlines() or ["pip gave no reason"]
            raise wheels.Offline(f"{' '.join(packages)}: {words[-1]}")
        target.replace(folder)
    return str(folder)


if __name__ == "__main__":
    sys.exit(main())
