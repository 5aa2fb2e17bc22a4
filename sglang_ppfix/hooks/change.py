"""A change of the runtime switch: what may change, checked before it is applied."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from sglang_ppfix.settings import LogLevel, Policy

#: Prefix of our keys in ``/set_internal_state``, whose values must be numbers
#: (``SetInternalStateReq`` of 0.5.23): choices travel as codes.
PREFIX = "ppfix_"

POLICY_CODES = {
    Policy.STOCK: 0,
    Policy.OBSERVE: 1,
    Policy.BALANCED: 2,
    Policy.AUTO: 3,
}
LOG_CODES = {
    LogLevel.OFF: 0,
    LogLevel.SUMMARY: 1,
    LogLevel.ADMISSIONS: 2,
    LogLevel.ALL_RANKS: 3,
}
KEYS = ("policy", "slots", "log")


_T = TypeVar("_T")


class ChangeError(ValueError):
    """A change is not allowed; the text names key, value and what is allowed."""


@dataclass(frozen=True)
class Change:
    """New values of the switch; None leaves one as it is, ``slots`` 0 lets the
    plugin choose."""

    policy: Policy | None = None
    slots: int | None = None
    log: LogLevel | None = None


def from_words(words: Mapping[str, str]) -> dict[str, int]:
    """Keys and codes for ``/set_internal_state`` out of ``policy=observe`` and so on.

    Raises:
        ChangeError: a key or a word is unknown.
    """
    values = {}
    for key, word in words.items():
        if key == "policy":
            code = _code(key, word, {p.value: c for p, c in POLICY_CODES.items()})
        elif key == "log":
            code = _code(key, word, {n.value: c for n, c in LOG_CODES.items()})
        elif key == "slots":
            text = "0" if word == "auto" else word
            if not text.isdecimal():
                raise ChangeError(f"slots={word!r}; allowed: auto, a number from 1")
            code = int(text)
        else:
            raise ChangeError(f"{key!r} is no key; allowed: {', '.join(KEYS)}")
        values[PREFIX + key] = code
    return values


def from_codes(values: Mapping[str, object], ring_length: int) -> Change:
    """The change that ``/set_internal_state`` asks for.

    Args:
        values: our keys only, prefix included.
        ring_length: slots of the ring, the most that can be filled.

    Raises:
        ChangeError: a key or a value is unknown.
    """
    policy, slots, log = None, None, None
    for name, value in values.items():
        key = name.removeprefix(PREFIX)
        if key == "policy":
            policy = _choice(name, value, {c: p for p, c in POLICY_CODES.items()})
        elif key == "log":
            log = _choice(name, value, {c: n for n, c in LOG_CODES.items()})
        elif key == "slots":
            slots = _choice(name, value, {n: n for n in range(ring_length + 1)})
        else:
            known = ", ".join(PREFIX + key for key in KEYS)
            raise ChangeError(f"{name!r} is no key; allowed: {known}")
    return Change(policy, slots, log)


def _code(key: str, word: str, codes: Mapping[str, int]) -> int:
    if word not in codes:
        raise ChangeError(f"{key}={word!r}; allowed: {', '.join(codes)}")
    return codes[word]


def _choice(name: str, value: object, choices: Mapping[int, _T]) -> _T:
    if not isinstance(value, (int, float)) or value not in choices:
        allowed = ", ".join(_meaning(code, choices[code]) for code in choices)
        raise ChangeError(f"{name}={value!r}; allowed: {allowed}")
    return choices[int(value)]


def _meaning(code: int, choice: object) -> str:
    return f"{code} ({choice.value})" if isinstance(choice, Enum) else str(code)
