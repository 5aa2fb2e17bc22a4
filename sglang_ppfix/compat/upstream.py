"""Does SGLang's own source hold the change already, merged or applied as a diff?"""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from .contract import POLICY, SCHEDULER
from .source import SourceTree


class Probe(NamedTuple):
    """A function that only a fixed SGLang has.

    Attributes:
        change: name of the diff that brings it.
        module: where it is.
        qualname: what it is called.
    """

    change: str
    module: str
    qualname: str


#: A module that our diffs add. It is in no record of pip and survives an upgrade of a
#: patched SGLang: what is in it counts only where the scheduler uses it.
_SLOTS = "sglang.srt.managers.pp_slots"

#: A name that each of our diffs (``patches/``) introduces.
PROBES = (
    Probe("derive-cap", SCHEDULER, "Scheduler._derive_pp_max_micro_batch_size"),
    Probe("balanced-filling", _SLOTS, "PPSlotFiller.begin_turn"),
    Probe("memory-all-slots", POLICY, "PrefillAdder.reserve_for_other_slots"),
    Probe("true-totals", _SLOTS, "PPSlots.all_reqs"),
)


def fixed_upstream(tree: SourceTree) -> Iterator[str]:
    """One line for each part of the change that SGLang holds.

    Raises:
        SourceError: a file cannot be read.
    """
    for probe in PROBES:
        if tree.find(probe.module, probe.qualname) is not None and (
            probe.module != _SLOTS or _mentions(tree, probe.qualname.split(".")[-1])
        ):
            yield (
                f"SGLang holds the change {probe.change} already "
                f"({probe.module}.{probe.qualname} exists): the plugin is not needed"
            )


def _mentions(tree: SourceTree, name: str) -> bool:
    """Whether the scheduler has ``something.name`` anywhere."""
    module = tree.module(SCHEDULER)
    return module is not None and any(
        isinstance(node, ast.Attribute) and node.attr == name
        for node in ast.walk(module)
    )
