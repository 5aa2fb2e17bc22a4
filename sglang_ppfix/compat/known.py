"""The releases that were tested, and the fingerprints of their bodies.

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
    """

    releases: tuple[Version, ...]
    bodies: Mapping[str, Mapping[str, tuple[str, ...]]]

    def is_tested(self, release: Version) -> bool:
        """Whether this very release was looked at; a local build counts as its own."""
        return Version(release.public) in self.releases

    def releases_with(self, target: str, fingerprint: str) -> tuple[str, ...]:
        """Releases whose body of ``target`` has this fingerprint, oldest first."""
        return self.bodies.get(target, {}).get(fingerprint, ())


@lru_cache(maxsize=1)
def known() -> Known:
    """The data file of this installation."""
    content = json.loads(files(__package__).joinpath(FILE).read_text("utf-8"))
    return Known(
        tuple(map(Version, content["releases"].split())),
        {
            target: {digest: tuple(same.split()) for digest, same in prints.items()}
            for target, prints in content["bodies"].items()
        },
    )
