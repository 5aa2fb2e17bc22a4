#!/usr/bin/env python3
"""Set up and run: ``python3 dev.py demo`` or ``python3 dev.py test``.

Standard library only. Real SGLang lives in one environment that every checkout and
CI share (11 GB; SGLANG_PPFIX_CACHE moves it); a checkout adds a small ``.venv`` that
looks into it, so that two checkouts never install over each other.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent
LOCK = ROOT / "requirements" / "sglang-0.5.23.lock"
CACHE = Path(os.environ.get("SGLANG_PPFIX_CACHE") or "~/.cache/sglang-ppfix")
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
DEMO = [
    *("lab", "--pp", "4", "--max-running-requests", "32", "--stage-ms", "20+10b"),
    *("--clients", "1,4,8,16,32", "--output-tokens", "40"),
    *("--json", "out/demo.json", "--plot", "out/demo.png"),
    *("--trace", "out/demo.trace.json"),
]
LAB = (
    "filling",
    "filling_switch",
    "chunks",
    "limits",
    "off",
    "memory",
    "requeue",
    "control",
)
# In this order: what fails fast comes first. CI runs those of DEFAULT.
GROUPS = {
    "lint": [["-m", "ruff", "check", "."], ["-m", "ruff", "format", "--check", "."]],
    "type": [["-m", "mypy"]],
    "unit": [["-m", "pytest", "-n", "2", "tests/unit"]],
    "contract": [
        [
            *("-m", "pytest", "-n", "2", "-m", "not releases"),
            *("tests/contract", "--ignore-glob=*test_patches*"),
        ]
    ],
    "lab": [
        ["-m", "pytest", *(f"tests/lab/test_plugin_{name}.py" for name in LAB)],
    ],
    # The diffs on every release, and upstream's tests on three trees.
    "patches": [
        [
            *("-m", "pytest"),
            *(
                f"tests/contract/test_patches_{name}.py"
                for name in ("releases", "trees", "upstream_issues")
            ),
        ]
    ],
    # Longer: all behaviour on real SGLang.
    "lab-all": [
        ["-m", "pytest", "tests/lab"],
        # On its own: each folder has a conftest that its tests import by that name.
        ["-m", "pytest", "tests/contract/test_patches_lab.py"],
    ],
}
DEFAULT = ("lint", "type", "unit", "contract", "patches", "lab")


def main() -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("env", help="make the environment and print its interpreter")
    demo = commands.add_parser("demo", help="stock against plugin on real SGLang")
    demo.add_argument("options", nargs=argparse.REMAINDER, help="options of the lab")
    test = commands.add_parser("test", help="run the tests")
    test.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    args = parser.parse_args()
    unknown = set(getattr(args, "groups", ())) - set(GROUPS)
    if unknown:
        parser.error(f"unknown group {min(unknown)!r}; allowed: {', '.join(GROUPS)}")
    if sys.version_info[:2] < (3, 11):
        found = ".".join(map(str, sys.version_info[:2]))
        parser.error(f"Python {found} runs this; SGLang 0.5.23 needs 3.11 or newer")
    prepare()
    if args.command == "env":
        print(PYTHON)
        return 0
    if args.command == "demo":
        (ROOT / "out").mkdir(exist_ok=True)
        return run(["-m", "sglang_ppfix", *DEMO, *args.options])
    return run_groups(args.groups or list(DEFAULT))


def run_groups(groups: list[str]) -> int:
    """Run every group, also after one failed, and say how each ended."""
    ended = {}
    for group in groups:
        start = time.monotonic()
        print(f"== {group}", flush=True)
        codes = [run(command) for command in GROUPS[group]]
        word = "FAILED" if any(codes) else "passed"
        ended[group] = f"{word} in {time.monotonic() - start:.0f} s"
    print("== " + "; ".join(f"{group} {end}" for group, end in ended.items()))
    return int(any(end.startswith("FAILED") for end in ended.values()))


def run(arguments: list[str]) -> int:
    """Run the checkout's interpreter."""
    return subprocess.run([PYTHON, *arguments], cwd=ROOT, check=False).returncode


def prepare() -> None:
    """Make the shared environment and the checkout's own, or reuse them."""
    shared = CACHE.expanduser() / LOCK.stem
    stamp = f"{hashlib.sha256(LOCK.read_bytes()).hexdigest()} {sys.version.split()[0]}"
    if not is_stamped(shared, stamp):
        print(f"installing sglang into {shared} (about 5 minutes, 11 GB)", flush=True)
        shutil.rmtree(shared, ignore_errors=True)
        make_venv(shared)
        pip(shared, "install", "-r", str(LOCK))
        (shared / "stamp").write_text(stamp)
    project = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    stamp = f"{stamp} {shared} {project}"
    if not is_stamped(VENV, stamp):
        shutil.rmtree(VENV, ignore_errors=True)
        make_venv(VENV)
        site = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
        (VENV / site / "shared.pth").write_text(f"{shared / site}\n")
        pip(VENV, "install", "--no-deps", "--no-build-isolation", "-e", str(ROOT))
        (VENV / "stamp").write_text(stamp)


def is_stamped(venv: Path, stamp: str) -> bool:
    """Whether an environment was finished with this very content."""
    path = venv / "stamp"
    return path.exists() and path.read_text() == stamp


def make_venv(path: Path) -> None:
    """Make a virtual environment with this interpreter."""
    subprocess.run([sys.executable, "-m", "venv", path], check=True)


def pip(venv: Path, *arguments: str) -> None:
    """Run pip in an environment, and end with its status when it fails."""
    command = [venv / "bin" / "python", "-m", "pip", "-q", *arguments]
    if code := subprocess.run(command, check=False).returncode:
        raise SystemExit(code)


if __name__ == "__main__":
    sys.exit(main())
