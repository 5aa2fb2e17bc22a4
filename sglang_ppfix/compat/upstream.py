"""Does SGLang's own source hold the change already, merged or applied as a diff?"""

from collections.abc import Iterator
from typing import NamedTuple

from .source import SourceTree


class Probe(NamedTuple):
    """A function that only a fixed SGLang has."""

    change: str
    module: str
    qualname: str


#: The names that our diffs (``patches/``) introduce, one for each patch.
PROBES: tuple[Probe, ...] = ()


def fixed_upstream(tree: SourceTree) -> Iterator[str]:
    """One line for each part of the change that SGLang holds.

    Raises:
        SourceError: a file cannot be read.
    """
    for probe in PROBES:
        if tree.find(probe.module, probe.qualname) is not None:
            yield (
                f"already fixed in SGLang: {probe.change} "
                f"({probe.module}.{probe.qualname} exists)"
            )
