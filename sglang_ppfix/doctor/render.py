"""The report as text: one line a check, and one under it that mends it.

Plain text without rich: the doctor must speak where an environment is broken.
"""

from .report import Check, Report

_WIDTH = 18  # of the longest name


def render(report: Report) -> str:
    """Text of the report, ending in the overall state."""
    lines = [line for check in report.checks for line in _lines(check)]
    return "\n".join([*lines, "", f"state: {report.state.value}"])


def _lines(check: Check) -> list[str]:
    lines = [f"{check.state.value:<5} {check.name:<{_WIDTH}} {check.text}"]
    if check.fix is not None:
        lines.append(f"{'':<5} {'':<{_WIDTH}} fix: {check.fix}")
    return lines
