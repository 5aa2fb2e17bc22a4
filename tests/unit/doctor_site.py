"""A folder that stands for site-packages, and the doctor run in it.

Made of links to what the doctor needs, so that what is not put in is not there,
whatever the environment of the tests holds. The doctor runs as a user runs it.
"""

import json
import os
import subprocess
import sys
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import sglang_ppfix

NEEDED = ("packaging", "wrapt", "rich", "nvidia-ml-py", "prometheus-client")
NEEDED_TOO = ("aiohttp", "numpy")
IMPORTED = ("packaging", "wrapt")
#: What shows that SGLang holds a part of the change, in the file that brings it.
CHANGE = {
    "scheduler": (
        "class Scheduler:\n    def _derive_pp_max_micro_batch_size(self): pass\n"
        "    def uses(self): self.filler.begin_turn(self.slots.all_reqs())\n"
    ),
    "schedule_policy": (
        "class PrefillAdder:\n    def reserve_for_other_slots(self): pass\n"
    ),
    "pp_slots": (
        "class PPSlotFiller:\n    def begin_turn(self): pass\n"
        "class PPSlots:\n    def all_reqs(self): pass\n"
    ),
}


class Site:
    """One fake environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "site"
        self.folder.mkdir()
        self.cwd = folder / "work"
        self.cwd.mkdir()
        (self.folder / "sglang_ppfix").symlink_to(Path(sglang_ppfix.__file__).parent)
        for name in ("sglang-ppfix", *NEEDED, *NEEDED_TOO):
            info = Path(str(metadata.distribution(name)._path))  # type: ignore[attr-defined]
            (self.folder / info.name).symlink_to(info)
            if name in IMPORTED:
                (self.folder / name).symlink_to(info.parent / name)

    def add_distribution(
        self, name: str, version: str, entry_points: str = "", requires: str = ""
    ) -> None:
        """Metadata of an installed distribution."""
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}"
        (info / "METADATA").write_text(text)
        if entry_points:
            (info / "entry_points.txt").write_text(entry_points)

    def add_sglang(self, version: str, requires: str = "") -> Path:
        """An SGLang that holds next to nothing; returns its package folder."""
        self.add_distribution("sglang", version, requires=requires)
        package = self.folder / "sglang"
        package.mkdir()
        (package / "__init__.py").write_text("raise AssertionError('imported')\n")
        (package / "_version.py").write_text(f"version = {version!r}\n")
        return package

    def change_sglang(self, *parts: str, by_patches: bool = False) -> None:
        """Put parts of the change into SGLang, as a merge or ``patches apply`` does."""
        managers = self.folder / "sglang" / "srt" / "managers"
        managers.mkdir(parents=True)
        for part in parts:
            (managers / f"{part}.py").write_text(CHANGE[part])
        if by_patches:
            ours = self.folder / "sglang" / "_ppfix_patches"
            ours.mkdir()
            (ours / "manifest.json").write_text("{}")

    def add_torch(self, version: str, local: str = "", requires: str = "") -> Path:
        """A torch that is whole and raises when imported; returns its package."""
        self.add_distribution("torch", version, requires=requires)
        package = self.folder / "torch"
        (package / "lib").mkdir(parents=True)
        (package / "__init__.py").write_text("raise ImportError('libcudart.so')\n")
        (package / "version.py").write_text(f"__version__ = {version + local!r}\n")
        (package / f"_C{EXTENSION_SUFFIXES[0]}").write_bytes(b"elf")
        (package / "lib" / "libtorch.so").write_bytes(b"library")
        info = self.folder / f"torch-{version}.dist-info"
        (info / "RECORD").write_text(
            "torch/lib/libtorch.so,sha256=x,7\ntorch/lib/gone.txt,sha256=x,7\n"
        )
        return package

    def remove(self, name: str) -> None:
        """Take a distribution or package out again."""
        for path in (*self.folder.glob(f"{name}-*.dist-info"), self.folder / name):
            path.unlink(missing_ok=True)

    def add_plugin(self, name: str, source: str) -> None:
        """Another SGLang plugin, in a module of its own."""
        module = name.replace("-", "_")
        (self.folder / f"{module}.py").write_text(source)
        points = f"[sglang.srt.plugins]\n{name} = {module}:register\n"
        self.add_distribution(f"dist-{name}", "1.0", points)

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess:
        """Run ``sglang-ppfix doctor`` here, without the real site-packages."""
        return self.run_module("sglang_ppfix", "doctor", *arguments, **environ)

    def run_module(
        self, *arguments: str, **environ: str
    ) -> subprocess.CompletedProcess:
        """Run ``python -m`` here, without the real site-packages."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith("SGLANG_")}
        return subprocess.run(
            [sys.executable, "-S", "-m", *arguments],
            env={**clean, "PYTHONPATH": str(self.folder), **environ},
            cwd=self.cwd,
            capture_output=True,
            text=True,
            check=False,
        )

    def examine(self, *arguments: str, **environ: str) -> dict[str, list[dict]]:
        """The report's checks by name; asserts that state and exit status agree."""
        done = self.run("--json", *arguments, **environ)
        assert done.returncode in (0, 1), done.stderr
        assert done.stderr == ""
        report = json.loads(done.stdout)
        assert report["schema_version"] == 1
        states = [check["state"] for check in report["checks"]]
        worst = max(states, key=["ok", "warn", "fail"].index)
        assert report["state"] == worst
        assert done.returncode == (worst == "fail")
        checks: dict[str, list[dict]] = {}
        for check in report["checks"]:
            checks.setdefault(check["name"], []).append(check)
        return checks


def only(checks: dict[str, list[dict]], name: str) -> dict:
    """The one check of this name."""
    (check,) = checks[name]
    return check
