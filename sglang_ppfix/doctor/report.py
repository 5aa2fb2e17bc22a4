"""What the doctor found: checks, each with a state in words and what mends it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from sglang_ppfix import __version__

SCHEMA_VERSION = 1


class State(Enum):
    """How bad it is; the report has the worst of its checks."""

    OK = "ok"
    WARN = "warn"  # the plugin works, or is off; something deserves a look
    FAIL = "fail"  # the plugin will not work, or the server will not start


_ORDER = list(State)


@dataclass(frozen=True)
class Check:
    """One question and its answer.

    Attributes:
        name: key of the check; a hooked method has its dotted path as ``subject``.
        state: the verdict.
        text: what was found, in one line.
        fix: command or setting that mends it; None where nothing is to be mended.
        subject: what exactly was checked, where a check looks at several things.
    """

    name: str
    state: State
    text: str
    fix: str | None = None
    subject: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The check with stable keys."""
        return {
            "name": self.name,
            "state": self.state.value,
            "text": self.text,
            "fix": self.fix,
            "subject": self.subject,
        }


@dataclass
class Report:
    """Every check, in the order in which they were made."""

    checks: list[Check] = field(default_factory=list)

    def add(self, checks: Iterable[Check]) -> None:
        """Append checks."""
        self.checks.extend(checks)

    @property
    def state(self) -> State:
        """The worst state of all checks."""
        return max((c.state for c in self.checks), key=_ORDER.index, default=State.OK)

    def to_json(self) -> dict[str, Any]:
        """The report with stable keys (``docs/doctor.md``)."""
        return {
            "schema_version": SCHEMA_VERSION,
            "plugin": __version__,
            "state": self.state.value,
            "checks": [check.to_json() for check in self.checks],
        }
