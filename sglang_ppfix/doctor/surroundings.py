"""What the checks look at: environment variables, working directory, SGLang."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from packaging.version import Version

from sglang_ppfix.compat.drift import is_untouched
from sglang_ppfix.compat.release import installed_release
from sglang_ppfix.compat.source import SourceError, SourceTree, package_folder
from sglang_ppfix.compat.upstream import PROBES, fixed_upstream
from sglang_ppfix.settings import Mode, SettingError, Settings, read


@dataclass
class Surroundings:
    """Where the plugin is to work; read once, so that the checks agree.

    Attributes:
        environ: environment variables.
        working_directory: where the server would be started.
        release: SGLang's release, None where there is none or it is unreadable.
        release_error: why the release is unreadable.
        package: folder of the package ``sglang``, None where there is none.
        tree: its source, parsed once for all checks.
        settings: the plugin's settings, None where they are wrong.
        settings_error: what is wrong with them.
    """

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    working_directory: Path = field(default_factory=Path.cwd)
    release: Version | None = None
    release_error: str | None = None
    package: Path | None = None
    tree: SourceTree | None = None
    settings: Settings | None = None
    settings_error: str | None = None

    def __post_init__(self) -> None:
        """Look around."""
        try:
            self.release = installed_release()
        except ValueError as error:
            self.release_error = str(error)
        self.package = package_folder(self.working_directory)
        if self.package is not None:
            self.tree = SourceTree(self.package)
        try:
            self.settings = read(self.environ)
        except SettingError as error:
            self.settings_error = str(error)

    @property
    def is_off(self) -> bool:
        """Whether ``SGLANG_PPFIX`` leaves the plugin out."""
        return self.settings is not None and self.settings.mode is Mode.OFF

    @property
    def is_patched(self) -> bool:
        """Whether SGLang itself holds all of the change."""
        return len(self.held) == len(PROBES)

    @cached_property
    def held(self) -> tuple[str, ...]:
        """One line for each part of the change that SGLang itself holds."""
        if self.tree is None:
            return ()
        try:
            # Byte for byte a tested release, it holds none: no need to parse it.
            if is_untouched(self.tree, (), self.release):
                return ()
            return tuple(fixed_upstream(self.tree))
        except SourceError:
            return ()  # what cannot be read is told with the targets
