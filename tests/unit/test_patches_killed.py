"""Killed in the middle: whichever step was the last, SGLang is stock or has it all.

Every test names, in its docstring, the wrong change that it catches.
"""

import signal
import subprocess
import sys
import textwrap

import pytest
from patches_site import NEWEST, contents, sides, small_package

from sglang_ppfix.patches import installed

# Kills itself at the N-th step that changes the file system, whichever that is.
KILLER = textwrap.dedent(
    """
    import os, pathlib, shutil, signal, sys
    from sglang_ppfix.patches import installed, tree
    from sglang_ppfix.patches.package import Package
    from packaging.version import Version

    action, folder, release, swap, kill_at = sys.argv[1:]
    steps = 0

    def counted(function):
        def wrapper(*args, **kwargs):
            global steps
            steps += 1
            if steps == int(kill_at):
                os.kill(os.getpid(), signal.SIGKILL)
            result = function(*args, **kwargs)
            steps += 1
            if steps == int(kill_at):
                os.kill(os.getpid(), signal.SIGKILL)
            return result
        return wrapper

    if swap == "no":
        tree.exchange = lambda one, other: False
    tree.exchange = counted(tree.exchange)
    for module, names in {
        os: ("link", "mkdir", "replace", "rename", "unlink", "rmdir", "fsync"),
        pathlib.Path: ("replace", "unlink", "mkdir"),
    }.items():
        for name in names:
            setattr(module, name, counted(getattr(module, name)))
    package = Package(pathlib.Path(folder))
    if action == "apply":
        installed.apply(package, Version(release))
    else:
        installed.revert(package)
    print(steps)
    """
)


def killed(action, package, swap, kill_at):
    """Run an action in a process that is killed at a step; its exit status."""
    done = subprocess.run(
        [
            *(sys.executable, "-c", KILLER, action, str(package.folder)),
            *(str(NEWEST), "yes" if swap else "no", str(kill_at)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return int(done.stdout)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return None


def steps_to_kill(total):
    """Every step, or a spread of them where there are many alike."""
    every = range(1, total + 1)
    return (
        every
        if total <= 40
        else sorted({*every[:3], *every[:: total // 12], *every[-6:]})
    )


@pytest.mark.parametrize("swap", [True, False], ids=["swap", "one by one"])
@pytest.mark.parametrize("action", ["apply", "revert"])
def test_killed_at_every_step(tmp_path, action, swap):
    """Catches a tree that is half changed.

    It acts as one of the two at once, and the next call makes it one of them.
    """
    trial = small_package(tmp_path / "trial")
    stock = contents(trial)
    if action == "revert":
        installed.apply(trial, NEWEST)
    whole = contents(trial)
    if action == "apply":
        total = killed("apply", trial, swap, 0)
        whole = contents(trial)
        installed.revert(trial)
    else:
        total = killed("revert", trial, swap, 0)
        installed.apply(trial, NEWEST)
    for kill_at in steps_to_kill(total):
        killed(action, trial, swap, kill_at)
        if swap:
            found = package_only(contents(trial))
            assert found in (package_only(stock), package_only(whole)), kill_at
        assert sides(trial, stock, whole) in ({"stock"}, {"whole"}), kill_at
        installed.recover(trial)
        found = contents(trial)
        assert found in (stock, whole), kill_at
        # From here on as from the start.
        if action == "apply" and found == whole:
            installed.revert(trial)
        elif action == "revert" and found == stock:
            installed.apply(trial, NEWEST)


def package_only(found):
    return {p: text for p, text in found.items() if p.startswith("sglang/")}
