"""Installing and removing the plugin moves nothing else, with pip and with uv.

In a fresh environment that holds what SGLang pins of our dependencies. Needs the
registry; without it one line says so and the tests are skipped.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements" / "sglang-0.5.23.lock"
#: Of SGLang's requirements those that are ours, too; the lock pins them.
SHARED = (
    "packaging",
    "rich",
    "nvidia-ml-py",
    "prometheus-client",
    "aiohttp",
    "numpy",
)
OURS = ("sglang-ppfix", "wrapt")


def run(*command):
    """Run a command; its output, or a failure that shows all of it."""
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command],
        env=clean,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Folder with our wheel and with wrapt's, which SGLang does not bring."""
    folder = tmp_path_factory.mktemp("wheels")
    pip = (sys.executable, "-m", "pip")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    try:
        run(*pip, "download", "--quiet", "--no-deps", "-d", folder, "wrapt>=1.16")
    except RuntimeError as error:
        pytest.skip(f"no registry: {str(error).splitlines()[-1]}")
    return folder


class Environment:
    """An environment as SGLang would have made it, and the tool that installs there."""

    def __init__(self, folder, tool):
        self.python = folder / "bin" / "python"
        run(sys.executable, "-m", "venv", folder)
        packages = [*SHARED, "uv"] if tool == "uv" else SHARED
        run(self.python, "-m", "pip", "install", "--quiet", "-c", LOCK, *packages)
        self._command = [self.python, "-m", "pip"]
        self._where, self._yes = [], ["-y"]
        if tool == "uv":
            # Without its own settings: it does not read pip's either.
            self._command = [folder / "bin" / "uv", "--no-config", "pip"]
            self._where, self._yes = ["--python", self.python], []

    def install(self, *arguments):
        """Install our wheel from the folder of wheels."""
        run(*self._command, "install", *self._where, "--no-index", *arguments)

    def uninstall(self):
        """Remove the plugin; what it needed stays."""
        run(*self._command, "uninstall", *self._yes, *self._where, "sglang-ppfix")

    def freeze(self):
        """What is installed, but for ours."""
        lines = run(*self._command, "freeze", *self._where).splitlines()
        return [line for line in lines if not line.startswith(OURS)]

    def has_ours(self):
        """Whether SGLang would find the plugin here."""
        code = (
            "from importlib.metadata import entry_points as e;"
            "print(len(e(group='sglang.srt.plugins', name='ppfix')))"
        )
        return run(self.python, "-c", code).strip() == "1"


@pytest.fixture(scope="module", params=["pip", "uv"])
def environment(request, tmp_path_factory):
    """One environment a tool."""
    try:
        return Environment(tmp_path_factory.mktemp(request.param), request.param)
    except RuntimeError as error:
        pytest.skip(f"no registry: {str(error).splitlines()[-1]}")


@pytest.mark.parametrize("extra", [(), ("--no-deps", "wrapt")], ids=" ".join)
def test_nothing_else_changes(environment, wheels, extra):
    """Catches a requirement that moves what SGLang pins, in or out."""
    before = environment.freeze()
    assert any(line.startswith("numpy==") for line in before)
    environment.install("--find-links", wheels, *extra, "sglang-ppfix")
    assert environment.has_ours()
    assert environment.freeze() == before
    environment.uninstall()
    assert not environment.has_ours()
    assert environment.freeze() == before


def test_the_extra_is_not_installed(wheels):
    """Catches a requirement on sglang or torch that is not behind an extra."""
    import zipfile

    (wheel,) = wheels.glob("sglang_ppfix-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("METADATA"))
        text = archive.read(name).decode()
    heavy = ("Requires-Dist: sglang", "Requires-Dist: torch")
    heavy = [line for line in text.splitlines() if line.startswith(heavy)]
    assert heavy
    assert all("extra ==" in line for line in heavy)
