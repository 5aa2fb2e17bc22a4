"""Commands that mend what a check found. Standard library only."""

import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

PLUGIN = "sglang-ppfix"


def pip(*arguments: str) -> str:
    """Command that installs into, or removes from, the doctor's own interpreter.

    Environments that uv made have no pip; there uv does it.
    """
    if find_spec("pip") is not None:
        return shlex.join([sys.executable, "-m", "pip", *arguments])
    return shlex.join(["uv", "pip", *arguments, "--python", sys.executable])


def reinstall(*requirements: str) -> str:
    """Command that puts files of distributions back, and moves nothing else."""
    return pip("install", "--force-reinstall", "--no-deps", *requirements)


def reinstall_plugin() -> str:
    """Command that gives this plugin its metadata: from the checkout, if it is one."""
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():
        return reinstall(str(checkout))
    return reinstall(PLUGIN)
