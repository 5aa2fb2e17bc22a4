"""Other plugins that go for the same methods, found in their source.

Their code is not run. What they decide at run time is seen at start-up only
(``compat.rivals``).
"""

import shlex
from collections.abc import Iterator
from importlib.metadata import entry_points

from sglang_ppfix.compat.release import DISTRIBUTION

from .claims import Claim, Names, claims, sources
from .report import Check, State
from .surroundings import Surroundings
from .switch import NAME, PLUGINS_GROUP, is_loaded, let_in


def rivals(surroundings: Surroundings) -> Iterator[Check]:
    """Every other package with a plugin that would be loaded, and what it claims."""
    names = Names(surroundings)
    packages: dict[str, set[str]] = {}
    for point in entry_points(group=PLUGINS_GROUP):
        owner = point.dist.name if point.dist is not None else point.module
        if owner != DISTRIBUTION and is_loaded(surroundings, point.name, owner):
            package = point.module.partition(".")[0]
            packages.setdefault(package, set()).add(point.name)
    found = {
        package: [c for path in sources(package) for c in claims(path, names)]
        for package in sorted(packages)
    }
    # Together: the command for one rival must not let in the other again.
    out = set().union(
        *(packages[p] for p, made in found.items() if any(map(_is_problem, made)))
    )
    fix = _without(surroundings, out)
    for package, made in found.items():
        plugin = ", ".join(sorted(packages[package]))
        yield from (_check(plugin, claim, fix) for claim in made)
    clean = [name for p, made in found.items() if not made for name in packages[p]]
    if clean:
        text = f"{', '.join(sorted(clean))}: no hook on a method of ours was found"
        yield Check("other_plugins", State.OK, text)


def _check(plugin: str, claim: Claim, fix: str) -> Check:
    where = f"plugin {plugin} ({claim.place})"
    if _replaces(claim):
        text = f"taken: {claim.target} is replaced by {where}"
        return Check("other_plugins", State.FAIL, text, fix, claim.target)
    if _is_problem(claim):
        text = f"{where} hooks {claim.named}: our hook on {claim.target} can hide it"
        return Check("other_plugins", State.WARN, text, fix, claim.target)
    text = f"{where} hooks {claim.target}, too ({claim.how}): both run"
    return Check("other_plugins", State.OK, text, None, claim.target)


def _is_problem(claim: Claim) -> bool:
    return _replaces(claim) or claim.named != claim.target


def _replaces(claim: Claim) -> bool:
    return claim.how in ("replace", "assignment")


def _without(surroundings: Surroundings, out: set[str]) -> str:
    """Command that leaves these plugins out, and no other."""
    rest = [name for name in let_in(surroundings) if name not in {*out, NAME}]
    value = shlex.quote(",".join([*rest, NAME]))
    return f"export SGLANG_PLUGINS={value}    # without {', '.join(sorted(out))}"
