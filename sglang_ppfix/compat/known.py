"""The releases that were tested, the fingerprints of their bodies, and their files.

``known_bodies.json`` is written by ``tools/known_bodies.py`` after a person has read
what changed; nothing else states which releases were looked at.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

from packaging.version import Version

FILE = "known_bodies.json"


class Known(NamedTuple):
    """What the data file holds.

    Attributes:
        releases: tested releases, oldest first.
        bodies: per target, fingerprint to the releases that have it.
        files: per module that a verdict reads, digest to the releases that have it.
    """

    releases: tuple[Version, ...]
    bodies: Mapping[str, Mapping[str, tuple[str, ...]]]
    files: Mapping[str, Mapping[str, tuple[str, ...]]]

    def is_tested(self, release: Version) -> bool:
        """Whether this very release was looked at; a local build counts as its own."""
        return Version(release.public) in self.releases

    def releases_with(self, target: str, fingerprint: str) -> tuple[str, ...]:
        """Releases whose body of ``target`` has this fingerprint, oldest first."""
        return self.bodies.get(target, {}).get(fingerprint, ())

    def modules_of(self, release: Version) -> dict[str, str]:
        """Modules that a verdict on a tested release reads, and their digests."""
        return {
            module: digest
            for module, digests in self.files.items()
            for digest, releases in digests.items()
            if release.public in releases
        }


@lru_cache(maxsize=1)
def known() -> Known:
    """The data file of this installation."""
    content = json.loads(files(__package__).joinpath(FILE).read_text("utf-8"))
    return Known(
        tuple(map(Version, content["releases"].split())),
        _split(content["bodies"]),
        _split(content["files"]),
    )


def _split(
    lines: Mapping[str, Mapping[str, str]],
) -> dict[str, dict[str, tuple[str, ...]]]:
    return {
        name: {digest: tuple(same.split()) for digest, same in digests.items()}
        for name, digests in lines.items()
    }
