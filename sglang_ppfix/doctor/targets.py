"""SGLang's own code: is the release in range, and is all as the hooks expect it?"""

from collections.abc import Iterator

from packaging.version import Version

from sglang_ppfix.compat.contract import BODIES
from sglang_ppfix.compat.drift import Drift, drifts, is_untouched
from sglang_ppfix.compat.known import known
from sglang_ppfix.compat.release import (
    FIRST_WITH_PLUGINS,
    is_supported,
    supported_range,
)
from sglang_ppfix.compat.source import SourceError
from sglang_ppfix.compat.upstream import fixed_upstream
from sglang_ppfix.hooks.table import hooks
from sglang_ppfix.patching import Hook
from sglang_ppfix.settings import Settings, variable

from .report import Check, State
from .surroundings import Surroundings, pip


def release(surroundings: Surroundings) -> Iterator[Check]:
    """Whether the release is in the supported range, and was tested itself."""
    found = surroundings.release
    if found is None:
        return
    supported = supported_range()
    if is_supported(found):
        said = "tested" if known().is_tested(found) else "not tested itself"
        state = State.OK if known().is_tested(found) else State.WARN
        fix = None if state is State.OK else _newest_tested()
        yield Check("release", state, f"{found} is in {supported}, {said}", fix)
        return
    if found < FIRST_WITH_PLUGINS:
        text = f"sglang {found} loads no plugins: SGLANG_PPFIX would be ignored"
        yield Check("release", State.FAIL, text, _newest_tested())
        return
    override = variable("allow_untested")
    allowed = surroundings.settings is not None and surroundings.settings.allow_untested
    yield Check(
        "release",
        State.WARN if allowed else State.FAIL,
        f"sglang {found} is outside the tested range {supported}"
        + (f"; {override}=1 tries it all the same" if allowed else ""),
        f"{_newest_tested()}    # or, at your own risk: export {override}=1",
    )


def upstream(surroundings: Surroundings) -> Iterator[Check]:
    """Whether SGLang's own source holds the change already."""
    tree, found = surroundings.tree, surroundings.release
    if tree is None or is_untouched(tree, hooks_of(found), found):
        return
    for finding in fixed_upstream(tree):
        yield Check("upstream", State.FAIL, finding, "unset SGLANG_PPFIX")


def hooked(surroundings: Surroundings) -> Iterator[Check]:
    """Every target of a hook, and what else the plugin relies on."""
    tree = surroundings.tree
    if tree is None or surroundings.release is None:
        return
    expected = hooks_of(surroundings.release)
    try:
        found = drifts(tree, expected, surroundings.release)
    except SourceError as error:
        fix = pip("install", "--force-reinstall", "--no-deps", "sglang")
        yield Check("targets", State.FAIL, str(error), fix)
        return
    allowed = surroundings.settings is not None and surroundings.settings.allow_untested
    for drift in found:
        yield _drifted(drift, surroundings.release, allowed)
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


def _drifted(drift: Drift, release: Version, allowed: bool) -> Check:
    tested = known().is_tested(release)
    return Check(
        "targets",
        State.WARN if allowed and drift.body_only else State.FAIL,
        f"drifted: {drift}",
        # A tested release that drifted was edited: put it back.
        pip("install", "--force-reinstall", "--no-deps", f"sglang=={release.public}")
        if tested
        else _newest_tested(),
        drift.target,
    )


def _newest_tested() -> str:
    return pip("install", f"sglang=={max(known().releases)}")
