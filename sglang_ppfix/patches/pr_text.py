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
        speed=_speed(figures),
    )


def _modification(mail: Mail) -> str:
    return f"- **{mail.subject.removeprefix('PP: ')}.** {mail.fields['How']}"


def _accuracy(figures: Figures) -> str:
    if not figures.compared:
        return "(no results yet: see benchmarks/)"
    return (
        "In the runs below outputs at temperature 0 were compared request by request: "
        f"{figures.identical} of {figures.compared} identical. Sums on a GPU depend on "
        "the batch size, so tokens flip where two logits are close, as they do with "
        "any change of batching."
    )


def _speed(figures: Figures) -> str:
    if not figures.speed:
        return "(no results yet: see benchmarks/)"
    note, *tables = figures.speed
    span = (
        f"The ratios run from {min(figures.ratios):.2f} to {max(figures.ratios):.2f}: "
        "which one a server gets depends on how steep its stage time is in the batch "
        "size, and on whether the CPU keeps up with more micro-batches in a lap."
    )
    return "\n\n".join([f"{note} {span}", *tables])
