"""Many runs: settings times loads times policies, over all cores."""

import math
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from .engine import Engine
from .load import Load
from .outcome import Outcome
from .policies import make
from .presets import Reading
from .server import Server


@dataclass(frozen=True)
class Case:
    """One row of a sweep.

    Attributes:
        policy: who decides.
        server: settings.
        load: requests.
        readings: the profile of the row first; the others are its uncertainty.
        labels: columns that say what the row is, beside those of the outcome.
    """

    policy: str
    server: Server
    load: Load
    readings: tuple[Reading, ...]
    labels: dict[str, Any] = field(default_factory=dict)


def run_case(case: Case, **options: Any) -> Outcome:
    """The outcome of the central reading; ``options`` go to :class:`Engine`."""
    return _run(case, case.readings[0], **options)


def row_of(case: Case) -> dict[str, Any]:
    """The row of a case: its labels, its figures, and how far those can be trusted."""
    outcome = run_case(case)
    others = [_run(case, reading).tok_s for reading in _bounds(case.readings)]
    figures = [outcome.tok_s, *others]
    row = {**outcome.row(), **case.labels}
    row["tok_s_low"] = round(min(figures), 1)
    row["tok_s_high"] = round(max(figures), 1)
    return row


def run_cases(
    cases: Sequence[Case],
    jobs: int | None = None,
    on_done: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Rows of all cases, in their order.

    Args:
        cases: what to run.
        jobs: processes; None means one per core, as far as there is work.
        on_done: called after every case.
    """
    jobs = min(jobs or os.cpu_count() or 1, math.ceil(len(cases) / 2))
    rows = []
    if jobs <= 1:
        for case in cases:
            rows.append(row_of(case))
            on_done()
        return rows
    with ProcessPoolExecutor(jobs) as pool:
        for row in pool.map(row_of, cases, chunksize=_chunk(len(cases), jobs)):
            rows.append(row)
            on_done()
    return rows


def without_bounds(readings: Sequence[Reading]) -> tuple[Reading, ...]:
    """The central reading alone, without its uncertainty: one run per row."""
    first = readings[0]
    return (replace(first, profile=replace(first.profile, spread=0.0)),)


def _chunk(cases: int, jobs: int) -> int:
    return max(1, min(8, cases // (4 * jobs)))


def _bounds(readings: Sequence[Reading]) -> Iterable[Reading]:
    yield from readings[1:]
    first = readings[0]
    if first.profile.spread:
        for profile in first.profile.bounds():
            yield replace(first, profile=profile)


def _run(case: Case, reading: Reading, **options: Any) -> Outcome:
    server = replace(case.server, ideal_loop=reading.ideal_loop)
    scheduler = make(case.policy, server, case.load)
    return Engine(
        server, reading.profile, case.load, scheduler, policy=case.policy, **options
    ).run()
