"""Is SGLang's release one that the plugin was tested with?"""

from collections.abc import Iterator
from importlib import metadata

from packaging.specifiers import SpecifierSet

from sglang_ppfix.compat.known import known
from sglang_ppfix.compat.release import (
    FIRST_WITH_PLUGINS,
    is_supported,
    supported_range,
)
from sglang_ppfix.settings import variable

from .mend import PLUGIN, pip, reinstall_plugin
from .report import Check, State
from .surroundings import Surroundings


def release(surroundings: Surroundings) -> Iterator[Check]:
    """Whether the release is in the supported range, and was tested itself."""
    found = surroundings.release
    if found is None:
        return
    if found < FIRST_WITH_PLUGINS:
        text = f"sglang {found} loads no plugins: SGLANG_PPFIX would be ignored"
        yield Check("release", State.FAIL, text, newest_tested())
        return
    supported = range_or_none()
    if supported is None:
        text = f"the supported range is not known: the metadata of {PLUGIN} states it"
        yield Check("release", State.FAIL, text, reinstall_plugin())
        return
    if is_supported(found):
        said = "tested" if known().is_tested(found) else "not tested itself"
        state = State.OK if known().is_tested(found) else State.WARN
        fix = None if state is State.OK else newest_tested()
        yield Check("release", state, f"{found} is in {supported}, {said}", fix)
        return
    override = variable("allow_untested")
    allowed = surroundings.settings is not None and surroundings.settings.allow_untested
    yield Check(
        "release",
        State.WARN if allowed else State.FAIL,
        f"sglang {found} is outside the tested range {supported}"
        + (f"; {override}=1 tries it all the same" if allowed else ""),
        f"{newest_tested()}    # or, at your own risk: export {override}=1",
    )


def range_or_none() -> SpecifierSet | None:
    """The supported range; None where our own metadata is missing or too old."""
    try:
        return supported_range()
    except (metadata.PackageNotFoundError, RuntimeError):
        return None


def newest_tested() -> str:
    """Command that installs the newest release that was tested."""
    return pip("install", f"sglang=={max(known().releases)}")
