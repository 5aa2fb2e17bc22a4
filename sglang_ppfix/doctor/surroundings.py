"""What the checks look at: environment variables, working directory, SGLang."""

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import Version

from sglang_ppfix.compat.release import installed_release
from sglang_ppfix.compat.source import SourceTree, package_folder
from sglang_ppfix.settings import SettingError, Settings, read


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


def pip(*arguments: str) -> str:
    """Command that runs pip in the interpreter that runs the doctor."""
    return shlex.join([sys.executable, "-m", "pip", *arguments])
