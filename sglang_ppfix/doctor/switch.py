"""Is the plugin switched on, and would SGLang load it?"""

import shlex
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points

from sglang_ppfix.compat.release import DISTRIBUTION
from sglang_ppfix.plugin import FLAG
from sglang_ppfix.settings import variable

from .mend import pip, reinstall_plugin
from .report import Check, State
from .surroundings import Surroundings

#: Groups and names of SGLang 0.5.11 to 0.5.23, ``sglang.srt.plugins``.
PLUGINS_GROUP = "sglang.srt.plugins"
PLATFORMS_GROUP = "sglang.srt.platforms"
NAME = "ppfix"
_TARGET = "sglang_ppfix.plugin:activate"


def flag(surroundings: Surroundings) -> Iterator[Check]:
    """``SGLANG_PPFIX`` and every other setting of the plugin."""
    settings = surroundings.settings
    if settings is None:
        error = surroundings.settings_error or "unreadable"
        name = error.partition("=")[0]
        yield Check("settings", State.FAIL, error, f"unset {name}")
        return
    given = sorted(
        f"{name}={value}"
        for name, value in surroundings.environ.items()
        if name.startswith(FLAG) and value.strip()
    )
    if surroundings.is_off:
        text = (
            f"the plugin is off: {FLAG} is {surroundings.environ.get(FLAG) or 'unset'}"
        )
        if surroundings.is_patched:  # and as it should be
            yield Check("settings", State.OK, text)
        else:
            yield Check("settings", State.WARN, text, f"export {FLAG}=1")
    else:
        yield Check("settings", State.OK, " ".join(given))
    if settings.allow_untested:
        name = variable("allow_untested")
        yield Check(
            "settings",
            State.WARN,
            f"{name}=1: bodies that nobody has looked at are accepted",
            f"unset {name}",
        )


def entry_point(surroundings: Surroundings) -> Iterator[Check]:
    """Whether SGLang finds the plugin by metadata, once."""
    found = list(entry_points(group=PLUGINS_GROUP, name=NAME))
    if not found:
        yield Check(
            "entry_point",
            State.FAIL,
            f"no entry point {NAME} in {PLUGINS_GROUP}: SGLang does not see the plugin",
            reinstall_plugin(),
        )
    elif {point.value for point in found} != {_TARGET}:
        wrong = next(point for point in found if point.value != _TARGET)
        yield Check(
            "entry_point",
            State.FAIL,
            f"{NAME} in {PLUGINS_GROUP} is {wrong.value} of {_owner(wrong)}, "
            f"expected {_TARGET}",
            pip("uninstall", _owner(wrong)),
        )
    else:
        yield Check("entry_point", State.OK, f"{NAME} = {_TARGET} in {PLUGINS_GROUP}")


def exclusions(surroundings: Surroundings) -> Iterator[Check]:
    """``SGLANG_PLUGINS`` and ``SGLANG_PLATFORM``, read as ``load_plugins()`` does."""
    allowed = surroundings.environ.get("SGLANG_PLUGINS", "")
    if allowed and not is_loaded(surroundings, NAME, DISTRIBUTION):
        yield Check(
            "exclusions",
            State.FAIL,
            f"SGLANG_PLUGINS={allowed!r} leaves {NAME} out",
            f"export SGLANG_PLUGINS={shlex.quote(','.join([*_names(allowed), NAME]))}",
        )
        return
    platform = surroundings.environ.get("SGLANG_PLATFORM", "")
    if DISTRIBUTION in _excluded_distributions(platform):
        yield Check(
            "exclusions",
            State.FAIL,
            f"SGLANG_PLATFORM={platform!r} leaves {DISTRIBUTION} out",
            "unset SGLANG_PLATFORM",
        )
        return
    said = [f"SGLANG_PLUGINS={allowed!r}"] if allowed else []
    said += [f"SGLANG_PLATFORM={platform!r}"] if platform else []
    yield Check(
        "exclusions",
        State.OK,
        f"{' and '.join(said) or 'no SGLANG_PLUGINS or SGLANG_PLATFORM'}: "
        f"{NAME} is loaded",
    )


def is_loaded(surroundings: Surroundings, name: str, distribution: str) -> bool:
    """Whether ``load_plugins()`` would load a plugin of this name."""
    allowed = _names(surroundings.environ.get("SGLANG_PLUGINS", ""))
    if surroundings.environ.get("SGLANG_PLUGINS") and name not in allowed:
        return False
    platform = surroundings.environ.get("SGLANG_PLATFORM", "")
    return distribution not in _excluded_distributions(platform)


def let_in(surroundings: Surroundings) -> list[str]:
    """What ``SGLANG_PLUGINS`` lists; where it is unset, all that it could list.

    SGLang applies it to every group of its own, platforms among them.
    """
    allowed = surroundings.environ.get("SGLANG_PLUGINS", "")
    if allowed:
        return _names(allowed)
    points = entry_points()
    groups = [group for group in points.groups if group.startswith("sglang.")]
    return sorted({p.name for group in groups for p in points.select(group=group)})


def _names(allowed: str) -> list[str]:
    return [name.strip() for name in allowed.split(",") if name.strip()]


def _excluded_distributions(platform: str) -> set[str]:
    if not platform:
        return set()
    return {
        _owner(point)
        for point in entry_points(group=PLATFORMS_GROUP)
        if point.name != platform
    }


def _owner(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unknown distribution"
