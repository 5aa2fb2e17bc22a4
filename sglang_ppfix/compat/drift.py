"""What of an SGLang is not as the plugin expects it, read from its source.

The doctor, the start-up and the contract tests all ask here, so that they cannot
come to different verdicts.
"""

import ast
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from packaging.version import Version

from .body import fingerprint
from .contract import ATTRIBUTES, BODIES, CALLS, Attributes, Body, Call
from .known import Known, known
from .source import SourceTree, parameters_of


class Target(Protocol):
    """A method that a hook goes around; ``patching.Hook`` is one."""

    @property
    def module(self) -> str: ...
    @property
    def qualname(self) -> str: ...
    @property
    def parameters(self) -> Iterable[str]: ...


class Drift(NamedTuple):
    """One thing that is not as expected.

    Attributes:
        target: dotted path of what drifted.
        problem: what is wrong with it; with the target in front, one line.
        body_only: parameters fit, the body is one that nobody has looked at.
    """

    target: str
    problem: str
    body_only: bool = False

    def __str__(self) -> str:
        return f"{self.target} {self.problem}"


def drifts(
    tree: SourceTree, targets: Sequence[Target], release: Version | None
) -> list[Drift]:
    """Everything that drifted, hooks first; nothing is parsed where nothing changed.

    Arguments and errors are those of ``search``.
    """
    if is_untouched(tree, targets, release):
        return []
    return search(tree, targets, release)


def is_untouched(
    tree: SourceTree, targets: Iterable[Target], release: Version | None
) -> bool:
    """Whether all that a verdict reads is, byte for byte, a tested release's.

    The contract tests have searched that text. A hundredth of a second instead of a
    third, in every process of a server.
    """
    if release is None or not known().is_tested(release):
        return False
    modules = known().modules_of(release)
    return all(target.module in modules for target in targets) and all(
        file_digest(tree.text(module)) == digest for module, digest in modules.items()
    )


def file_digest(text: bytes | None) -> str | None:
    """16 hexadecimal digits over a file; None where there is none."""
    return None if text is None else hashlib.blake2b(text, digest_size=8).hexdigest()


def search(
    tree: SourceTree, targets: Iterable[Target], release: Version | None
) -> list[Drift]:
    """Everything that drifted, found by reading all of it.

    Args:
        tree: source of the SGLang to judge.
        targets: what the plugin hooks.
        release: which release it says it is; None where it cannot say.

    Raises:
        SourceError: a file cannot be read.
    """
    found = [drift for target in targets for drift in _parameters(tree, target)]
    for attributes in ATTRIBUTES:
        found += _attributes(tree, attributes)
    for call in CALLS:
        found += _call(tree, call)
    # Where the parameters changed, the body did too: say the worse, and once.
    told = {drift.target for drift in found}
    for body in BODIES:
        if body.target not in told:
            found += _body(tree, body, release, known())
    return list(dict.fromkeys(found))


MISSING = "does not exist"
_LONG = 60


def _parameters(tree: SourceTree, target: Target) -> Iterator[Drift]:
    path = f"{target.module}.{target.qualname}"
    definition = tree.find(target.module, target.qualname)
    if definition is None:
        yield Drift(path, MISSING)
        return
    found = parameters_of(definition.node)
    if found not in target.parameters:
        yield Drift(path, _difference(found, list(target.parameters)))


def _difference(found: str, expected: list[str]) -> str:
    """How a parameter list differs; of long lists only what is new and gone."""
    if len(found) <= _LONG and all(len(known) <= _LONG for known in expected):
        lists = " or ".join(f"({known})" for known in expected)
        return f"takes ({found}), expected {lists}"
    names = found.split(", ")
    nearest = max(
        (known.split(", ") for known in expected),
        key=lambda known: len(set(known) & set(names)) - len(set(known) ^ set(names)),
    )
    parts = [f"new {name}" for name in names if name not in nearest]
    parts += [f"gone {name}" for name in nearest if name not in names]
    return f"has other parameters: {', '.join(parts) or 'another order'}"


def _body(
    tree: SourceTree, body: Body, release: Version | None, known: Known
) -> Iterator[Drift]:
    definition = tree.find(body.module, body.qualname)
    if definition is None:
        yield Drift(body.target, MISSING)
        return
    releases = known.releases_with(body.target, fingerprint(definition.node))
    if release is not None and known.is_tested(release):
        if release.public in releases:
            return
        # Old text under a new number, or the other way round: two installations.
        whose = f"that of {releases[-1]}" if releases else "in no tested release"
        problem = f"has another body than in {release.public} ({whose})"
    elif releases:
        return
    else:
        problem = "has a body that is in no tested release"
    yield Drift(body.target, f"{problem}; expected that it {body.why}", True)


def _attributes(tree: SourceTree, wanted: Attributes) -> Iterator[Drift]:
    path = f"{wanted.module}.{wanted.name}"
    if not tree.has_class(wanted.module, wanted.name):
        yield Drift(path, MISSING)
        return
    present = tree.attributes(wanted.module, wanted.name)
    for names in wanted.names:
        if present.isdisjoint(names.split("|")):
            yield Drift(path, f"has no {names.replace('|', ' or ')}")


def _call(tree: SourceTree, call: Call) -> Iterator[Drift]:
    path = f"{call.module}.{call.qualname}"
    definition = tree.find(call.module, call.qualname)
    if definition is None:
        yield Drift(path, MISSING)
    elif call.name not in _mentioned(definition.node):
        yield Drift(path, f"does not mention {call.name}: {call.why}")


def _mentioned(node: ast.AST) -> set[str]:
    names = set()
    for child in ast.walk(node):
        if isinstance(child, ast.Name):
            names.add(child.id)
        elif isinstance(child, ast.Attribute):
            names.add(child.attr)
        elif isinstance(child, ast.keyword) and child.arg is not None:
            names.add(child.arg)
    return names
