"""Every environment variable of the plugin, parsed and checked in one place."""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import TypeVar

PREFIX = "SGLANG_PPFIX"


class SettingError(ValueError):
    """A setting holds a value that is not allowed; the text names all three."""


class Mode(Enum):
    """What ``SGLANG_PPFIX`` asks for."""

    OFF = "0"
    ON = "1"  # fail closed: the server ends where the plugin cannot work
    AUTO = "auto"  # stock, with a warning, where the plugin cannot work
    OBSERVE = "observe"  # log and metrics, stock decisions


class Policy(Enum):
    """Who decides how many requests a slot takes in."""

    BALANCED = "balanced"
    AUTO = "auto"  # balanced, over as many slots as help
    OBSERVE = "observe"  # stock decides, the plugin counts and logs
    STOCK = "stock"  # stock decides, only laps and tokens are counted

    @property
    def balances(self) -> bool:
        """Whether the plugin decides, not stock."""
        return self in (Policy.BALANCED, Policy.AUTO)


class LogLevel(Enum):
    """How much of the admissions is logged."""

    OFF = "off"
    SUMMARY = "summary"  # one line every SGLANG_PPFIX_SUMMARY_LAPS busy laps
    ADMISSIONS = "admissions"  # and one line per admission, PP rank 0
    ALL_RANKS = "all-ranks"  # the same from every rank


@dataclass(frozen=True)
class Settings:
    """The plugin's settings in one process.

    Attributes:
        mode: ``SGLANG_PPFIX``.
        policy: ``SGLANG_PPFIX_POLICY``; ``observe`` when the mode is ``observe``.
        slots: ``SGLANG_PPFIX_SLOTS``, target slots; None lets the plugin choose.
        log: ``SGLANG_PPFIX_LOG``.
        summary_laps: ``SGLANG_PPFIX_SUMMARY_LAPS``, busy laps between summaries.
        decision_log: ``SGLANG_PPFIX_DECISION_LOG``, folder for one JSON line per
            decision and rank; None writes nothing.
        allow_untested: ``SGLANG_PPFIX_ALLOW_UNTESTED``, run on a release outside the
            tested range when every probe passes.
    """

    mode: Mode = Mode.OFF
    policy: Policy = Policy.BALANCED
    slots: int | None = None
    log: LogLevel = LogLevel.ADMISSIONS
    summary_laps: int = 1000
    decision_log: Path | None = None
    allow_untested: bool = False

    def shared(self) -> dict[str, object]:
        """The settings that every rank must have in common, as plain values."""
        plain = {
            key: value.value if isinstance(value, Enum) else value
            for key, value in asdict(self).items()
        }
        return {key: plain[key] for key in ("mode", "policy", "slots")}


_Choice = TypeVar("_Choice", bound=Enum)


def _choice(kind: type[_Choice]) -> Callable[[str, str], _Choice]:
    def parse(name: str, text: str) -> _Choice:
        try:
            return kind(text.lower())
        except ValueError:
            raise _refused(name, text, ", ".join(k.value for k in kind)) from None

    return parse


def _positive(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise _refused(name, text, "a whole number from 1")
    return int(text)


def _switch(name: str, text: str) -> bool:
    if text not in ("0", "1"):
        raise _refused(name, text, "0, 1")
    return text == "1"


def _folder(name: str, text: str) -> Path:
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise _refused(name, text, "a folder")
    return path


def _refused(name: str, text: str, allowed: str) -> SettingError:
    return SettingError(f"{name}={text!r} is not allowed; allowed: {allowed}")


_MODE = PREFIX
_PARSERS: dict[str, Callable[[str, str], object]] = {
    "policy": _choice(Policy),
    "slots": _positive,
    "log": _choice(LogLevel),
    "summary_laps": _positive,
    "decision_log": _folder,
    "allow_untested": _switch,
}


def variable(field: str) -> str:
    """Name of the environment variable behind a field of ``Settings``."""
    return f"{PREFIX}_{field.upper()}"


def read(environ: Mapping[str, str] | None = None) -> Settings:
    """Settings out of the environment; an empty variable counts as unset.

    Raises:
        SettingError: a value is not allowed, or a variable that starts with
            ``SGLANG_PPFIX_`` is unknown (a misspelt setting must not be ignored).
    """
    environ = os.environ if environ is None else environ
    mode = _choice(Mode)(_MODE, environ.get(_MODE, "").strip() or "0")
    values: dict[str, object] = {"mode": mode}
    for name, raw in environ.items():
        text = raw.strip()
        if not name.startswith(f"{PREFIX}_") or not text or name in OTHER_VARIABLES:
            continue
        field = name[len(PREFIX) + 1 :].lower()
        if field not in _PARSERS or variable(field) != name:
            known = ", ".join(variable(field) for field in _PARSERS)
            raise SettingError(f"{name}={text!r} is not a setting; known: {known}")
        values[field] = _PARSERS[field](name, text)
    policy = values.setdefault(
        "policy", Policy.OBSERVE if mode is Mode.OBSERVE else Policy.BALANCED
    )
    if mode is Mode.OBSERVE and policy is not Policy.OBSERVE:
        name = variable("policy")
        raise _refused(name, environ[name], f"observe, when {_MODE}=observe")
    return Settings(**values)  # type: ignore[arg-type]


# Read elsewhere: by the lab's own plugin, and by dev.py and the tests.
OTHER_VARIABLES = frozenset({f"{PREFIX}_LAB", f"{PREFIX}_CACHE"})
