"""SGLang's own code: is all as the hooks expect it?"""

from collections.abc import Iterator

from packaging.version import Version

from sglang_ppfix.compat.contract import BODIES
from sglang_ppfix.compat.drift import Drift, drifts
from sglang_ppfix.compat.known import known
from sglang_ppfix.compat.source import SourceError
from sglang_ppfix.hooks.table import hooks
from sglang_ppfix.patching import Hook
from sglang_ppfix.settings import Settings

from .mend import reinstall
from .release import newest_tested
from .report import Check, State
from .surroundings import Surroundings
from .upstream import put_back


def hooked(surroundings: Surroundings) -> Iterator[Check]:
    """Every target of a hook, and what else the plugin relies on."""
    tree, release = surroundings.tree, surroundings.release
    if tree is None or release is None:
        return
    expected = hooks_of(release)
    try:
        found = drifts(tree, expected, release)
    except SourceError as error:
        yield Check("targets", State.FAIL, str(error), reinstall("sglang"))
        return
    allowed = surroundings.settings is not None and surroundings.settings.allow_untested
    # A tested release that drifted was edited: put it back.
    tested = known().is_tested(release)
    fix = put_back(surroundings) if tested else newest_tested()
    for drift in found:
        yield _drifted(drift, allowed, fix)
    drifted = {drift.target for drift in found}
    sound = [hook.target for hook in expected if hook.target not in drifted]
    bodies = [body.target for body in BODIES if body.target not in drifted]
    if sound or bodies:
        yield Check(
            "targets",
            State.OK,
            f"{len(sound)} of {len(expected)} hooked methods and {len(bodies)} of "
            f"{len(BODIES)} bodies are as expected",
        )


def hooks_of(release: Version | None) -> list[Hook]:
    """The hooks for a release; they are looked at, never installed."""
    return hooks(Settings(), lambda: True, release)


def _drifted(drift: Drift, allowed: bool, fix: str) -> Check:
    state = State.WARN if allowed and drift.body_only else State.FAIL
    return Check("targets", state, f"drifted: {drift}", fix, drift.target)
