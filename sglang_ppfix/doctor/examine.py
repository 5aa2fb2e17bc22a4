"""All checks, in the order of a start-up."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from . import own
from .mend import reinstall, reinstall_plugin
from .report import Check, Report, State

if TYPE_CHECKING:
    from .surroundings import Surroundings

#: Name of a check to its function. Each is imported only when its turn comes: what is
#: broken in an environment may be what the plugin itself, or one check, needs.
_CHECKS = {
    "sglang": "environment.sglang",
    "torch": "pytorch.torch",
    "working_directory": "shadows.working_directory",
    "settings": "switch.flag",
    "entry_point": "switch.entry_point",
    "exclusions": "switch.exclusions",
    "release": "release.release",
    "upstream": "upstream.upstream",
    "targets": "targets.hooked",
    "other_plugins": "rivals.rivals",
}
#: Without meaning where SGLang holds the change itself: there is nothing to hook.
_FOR_STOCK = frozenset({"exclusions", "release", "targets", "other_plugins"})


_Function = Callable[..., Any]


def examine(url: str | None = None, api_key: str | None = None) -> Report:
    """Make every check; with ``url``, ask that server, too.

    Args:
        url: base address of a running server.
        api_key: bearer token for it.
    """
    report, loader = Report(), _Loader()
    report.add(own.python())
    report.add(own.plugin())
    look_around = loader.load("surroundings.Surroundings", *_CHECKS)
    if look_around is not None:
        surroundings: Surroundings = look_around()
        for name, path in _CHECKS.items():
            if name in _FOR_STOCK and surroundings.is_patched:
                continue
            check = loader.load(path, name)
            if check is not None:
                report.add(check(surroundings))
    if url is not None:
        # Only now: aiohttp takes a quarter of a second.
        server = loader.load("live.server", "server")
        if server is not None:
            report.add(server(url, api_key))
    report.add(loader.skipped())
    return report


class _Loader:
    """Imports functions of the checks, and remembers which cannot be imported."""

    def __init__(self) -> None:
        self._failed: dict[tuple[str, str], list[str]] = {}

    def load(self, path: str, *names: str) -> _Function | None:
        """A function by module and name; None where its module cannot be imported.

        Args:
            path: ``module.function`` in this package.
            names: checks that are not made without it.
        """
        module, _, function = path.partition(".")
        try:
            imported = importlib.import_module(f".{module}", __package__)
        except Exception as error:  # noqa: BLE001 - a broken package raises anything
            said = " ".join(f"{type(error).__name__}: {error}".split())
            self._failed.setdefault((said, _mend(error)), []).extend(names)
            return None
        found: _Function = getattr(imported, function)
        return found

    def skipped(self) -> Iterator[Check]:
        """One line for each reason why checks were not made."""
        for (said, fix), names in self._failed.items():
            text = f"not checked: {', '.join(names)}: {said}"
            yield Check("skipped", State.FAIL, text, fix)


def _mend(error: Exception) -> str:
    """Command for a package that cannot be imported, as far as the error names it."""
    name = (error.name or "") if isinstance(error, ImportError) else ""
    package = name.partition(".")[0]
    if package == __package__.partition(".")[0]:
        return reinstall_plugin()
    return reinstall(*([package] if package else ["packaging", "wrapt"]))
