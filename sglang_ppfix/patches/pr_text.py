"""The text of the pull request, filled with figures that ``benchmarks/`` wrote."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from packaging.version import Version

from .figures import Figures, read_figures
from .mail import Mail


def results_folder() -> Path:
    """Where the results of the benchmarks lie; a wheel has none."""
    return Path(__file__).resolve().parents[2] / "benchmarks" / "results"


def pr_text(
    release: Version, mails: Sequence[Mail], results: Path | None = None
) -> str:
    """Text of the pull request for a series.

    Args:
        release: that the series is for.
        mails: the series.
        results: folder with results; the repository's if None.
    """
    figures = read_figures(results_folder() if results is None else results)
    template = files(__package__).joinpath("pr.md").read_text("utf-8")
    return Template(template).substitute(
        release=release,
        modifications="\n".join(_modification(mail) for mail in mails),
        accuracy=_accuracy(figures),
        benchmarked="x" if figures.speed else " ",
        speed="\n\n".join(figures.speed) or "(no results yet: see benchmarks/)",
    )


def _modification(mail: Mail) -> str:
    return f"- **{mail.subject.removeprefix('PP: ')}.** {mail.fields['How']}"


def _accuracy(figures: Figures) -> str:
    if not figures.compared:
        return "(no results yet: see benchmarks/)"
    return (
        f"In the runs below outputs were compared request by request: "
        f"{figures.identical} of {figures.compared} comparisons identical."
    )
