"""The whole of ``sglang-ppfix diagnose``: arguments in, report out."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .diagnosis_config import Hints
from .diagnosis_logs import diagnose_logs
from .diagnosis_text import as_text
from .diagnosis_types import DiagnoseError, Report, Verdict
from .log_stream import LogInputError

#: What is shown to the user as one line.
ERRORS = (DiagnoseError, LogInputError)


@dataclass(frozen=True)
class Request:
    """What the user asked for.

    Attributes:
        files: logs; ``-`` is standard input.
        url: a live server to sample for ``seconds``.
        plot: where to draw the log.
        hints: what the user knows.
        api_key: of the live server, where it has one.
    """

    files: tuple[str, ...] = ()
    url: str | None = None
    seconds: float = 20.0
    plot: str | None = None
    hints: Hints = field(default_factory=Hints)
    api_key: str | None = None

    @classmethod
    def from_arguments(cls, given: Mapping[str, Any]) -> "Request":
        """Out of command line arguments.

        Raises:
            DiagnoseError: nothing to diagnose, or a bad value.
        """
        points = dict(_point(text) for text in given["point"])
        if not given["files"] and not given["url"] and not points:
            raise DiagnoseError("nothing to diagnose: give a log, --url or --point")
        if not 1.0 <= given["seconds"] <= 3600.0:
            raise DiagnoseError(f"--seconds {given['seconds']:g}: must be 1 to 3600")
        hints = Hints(
            clients=given["clients"],
            pp_size=given["pp_size"],
            async_depth=given["async_depth"],
            max_running_requests=given["max_running_requests"],
            cap=given["cap"],
            layers=_layers(given["layers"]),
            model=given["model"],
            release=given["release"],
            points=points,
        )
        return cls(
            tuple(given["files"]),
            given["url"],
            given["seconds"],
            given["plot"],
            hints,
            given["api_key"],
        )


def _point(text: str) -> tuple[int, float]:
    clients, _, rate = text.partition("=")
    try:
        return int(clients), float(rate)
    except ValueError:
        raise DiagnoseError(
            f"--point {text!r}: must be CLIENTS=TOK_S, e.g. 32=248.1"
        ) from None


def _layers(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise DiagnoseError(
            f"--layers {text!r}: must be a number, or one a stage: 61 or 8,8,8,7"
        ) from None


def diagnose(request: Request) -> Report:
    """Diagnose what was asked for.

    Raises:
        DiagnoseError: bad values, or a live server that does not answer.
        LogInputError: a file cannot be read.
    """
    if request.url is not None:
        from .diagnosis_live import diagnose_live

        found = diagnose_live(
            request.url,
            request.seconds,
            request.files,
            request.hints,
            request.api_key,
        )
    else:
        found = diagnose_logs(request.files, request.hints)
    if request.plot is not None:
        from .log_plot import draw

        draw(found, request.plot)
    return found


def show(report: Report) -> None:
    """Print a report; headings are bold on a terminal."""
    lines = as_text(report)
    if not sys.stdout.isatty():
        print("\n".join(lines))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for number, line in enumerate(lines):
        heading = number == 0 or (line.endswith(":") and not line.startswith(" "))
        console.print(Text(line, style="bold" if heading else ""), soft_wrap=True)


def exit_status(report: Report) -> int:
    """0 healthy, 1 a finding, 2 not enough data."""
    if report.verdict is Verdict.NOT_ENOUGH_DATA:
        return 2
    return 0 if report.verdict is Verdict.HEALTHY else 1
