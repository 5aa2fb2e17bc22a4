"""Decide whether the plugin works here, and hook SGLang when its scheduler loads."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import wrapt

from . import __version__, patching
from .compat import rivals
from .compat.drift import is_untouched, search
from .compat.release import installed_release, is_supported, supported_range
from .compat.source import SourceError, SourceTree
from .compat.upstream import fixed_upstream
from .hooks.table import TRIGGER, hooks
from .plugin import refuse
from .settings import Mode, SettingError, Settings, read, variable


def activate() -> None:
    """Read the settings and arrange for the hooks.

    Raises:
        SystemExit: a setting is wrong, or the plugin cannot work and the mode is not
            ``auto``. SGLang's ``load_plugins()`` swallows every other exception, and
            the server would run without what the user asked for.
    """
    try:
        settings = read()
    except SettingError as error:
        raise SystemExit(f"sglang-ppfix: {error}") from None
    if settings.mode is Mode.OFF:
        return
    reason = _unsupported(settings)
    if reason is not None:
        refuse(settings.mode.value, reason)
        return
    wrapt.register_post_import_hook(_Installer(settings), TRIGGER)


class _Installer:
    """Installs the hooks as soon as SGLang's scheduler module is there."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.hooks = hooks(settings, self.check, installed_release())
        self.refused = False

    def __call__(self, module: ModuleType) -> None:
        package = Path(str(module.__file__)).parents[2]
        try:
            problems = [*self._drifts(package), *rivals.foreign(self.hooks, package)]
            if not problems:
                patching.install(self.hooks)
                patching.verify(self.hooks)
        except (patching.PatchError, SourceError) as error:
            problems = [str(error)]
        except Exception as error:  # noqa: BLE001
            # In a scheduler process this runs inside load_plugins(), which would
            # swallow it and leave half of the hooks where they are.
            problems = [" ".join(f"{type(error).__name__}: {error}".split())]
        if problems:
            self._give_up(problems)
            return
        # Logging is not configured yet in a scheduler process.
        print(
            f"sglang-ppfix {__version__}: hooked sglang {installed_release()}, "
            f"SGLANG_PPFIX={self.settings.mode.value}, "
            f"policy {self.settings.policy.value}",
            file=sys.stderr,
            flush=True,
        )

    def check(self) -> bool:
        """All plugins are loaded: are the hooks still where they were put?

        Returns:
            False where the plugin does not act in this process.
        """
        if self.refused:
            return False
        problems = list(rivals.replaced(self.hooks))
        try:
            patching.verify(self.hooks)
        except patching.PatchError as error:
            problems.append(str(error))
        if problems:
            self._give_up(problems)
        return not self.refused

    def _drifts(self, package: Path) -> Iterator[str]:
        """What the source under ``package`` lacks, or has already."""
        tree, release = SourceTree(package), installed_release()
        if is_untouched(tree, self.hooks, release):
            return
        yield from fixed_upstream(tree)
        for drift in search(tree, self.hooks, release):
            if drift.body_only and self.settings.allow_untested:
                line = f"sglang-ppfix {__version__}: {drift}; tried all the same"
                print(line, file=sys.stderr, flush=True)
            else:
                yield str(drift)

    def _give_up(self, problems: list[str]) -> None:
        self.refused = True
        for hook in self.hooks:
            # One that is missing carries no hook, and must not keep the others.
            with contextlib.suppress(patching.PatchError):
                patching.undo([hook])
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        refuse(
            self.settings.mode.value,
            f"{problems[0]}{more}; run: sglang-ppfix doctor",
        )


def _unsupported(settings: Settings) -> str | None:
    try:
        release = installed_release()
    except ValueError as error:
        return str(error)
    if release is None:
        return "SGLang is not installed"
    if is_supported(release) or settings.allow_untested:
        return None
    return (
        f"sglang {release} is outside the tested range {supported_range()}; "
        f"{variable('allow_untested')}=1 tries it all the same"
    )
