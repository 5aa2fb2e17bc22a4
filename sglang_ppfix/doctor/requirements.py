"""Requirements in metadata: which ones are there, and which are not met."""

from collections.abc import Iterable, Iterator
from importlib import metadata

from packaging.requirements import Requirement


def applying(lines: Iterable[str]) -> Iterator[Requirement]:
    """Requirements that hold here, extras aside."""
    for line in lines:
        requirement = Requirement(line)
        if not requirement.marker or requirement.marker.evaluate({"extra": ""}):
            yield requirement


def absent(lines: Iterable[str]) -> Iterator[Requirement]:
    """Those of ``lines`` of which no release at all is installed."""
    for requirement in applying(lines):
        try:
            metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            yield requirement


def unmet(lines: Iterable[str]) -> Iterator[Requirement]:
    """Those of ``lines`` that the installed distributions do not meet."""
    for requirement in applying(lines):
        try:
            found = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            yield requirement
            continue
        if not requirement.specifier.contains(found, prereleases=True):
            yield requirement
