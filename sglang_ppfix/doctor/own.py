"""Interpreter and plugin: what must be right before anything else can be checked.

Standard library only: this speaks where nothing that the plugin requires is there.
"""

import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from sglang_ppfix import __version__

from .mend import PLUGIN, pip, reinstall, reinstall_plugin
from .report import Check, State


def python() -> Iterator[Check]:
    """Which interpreter this is: the one that must start the server, too."""
    text = f"{platform.python_version()}, {sys.executable}"
    yield Check("python", State.OK, text)


def plugin() -> Iterator[Check]:
    """The plugin's own metadata and dependencies."""
    where = Path(__file__).parents[1]
    try:
        lines = metadata.requires(PLUGIN) or []
    except metadata.PackageNotFoundError:
        yield Check(
            "plugin",
            State.FAIL,
            f"{where} is importable, but {PLUGIN} is not installed: SGLang finds "
            "plugins by metadata",
            reinstall_plugin(),
        )
        return
    try:
        from .requirements import unmet

        broken = [str(requirement) for requirement in unmet(lines)]
        fix = pip("install", *broken)
    except ImportError:
        # It is what reads the others. Reinstalled, because its metadata may be there.
        broken = [line for line in lines if line.startswith("packaging")]
        fix = reinstall(*broken)
    if broken:
        text = f"{PLUGIN} needs {', '.join(broken)}"
        yield Check("plugin", State.FAIL, text, fix)
        return
    yield Check("plugin", State.OK, f"{PLUGIN} {__version__}, {where}")
