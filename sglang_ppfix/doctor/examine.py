"""All checks, in the order of a start-up."""

from collections.abc import Callable, Iterator

from . import environment, rivals, switch, targets
from .report import Check, Report
from .surroundings import Surroundings

_CHECKS: tuple[Callable[[Surroundings], Iterator[Check]], ...] = (
    environment.python,
    environment.plugin,
    environment.sglang,
    environment.torch,
    environment.working_directory,
    switch.flag,
    switch.entry_point,
    switch.exclusions,
    targets.release,
    targets.upstream,
    targets.hooked,
    rivals.rivals,
)


def examine(
    surroundings: Surroundings, url: str | None = None, api_key: str | None = None
) -> Report:
    """Make every check; with ``url``, ask that server, too.

    Args:
        surroundings: environment, working directory and SGLang to judge.
        url: base address of a running server.
        api_key: bearer token for it.
    """
    report = Report()
    for check in _CHECKS:
        report.add(check(surroundings))
    if url is not None:
        from . import live  # only now: aiohttp takes a quarter of a second

        report.add(live.server(url, api_key))
    return report
