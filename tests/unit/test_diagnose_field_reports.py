"""Public reports of pipeline servers: a right verdict, or what is missing.

``tests/data/logs/field_reports.json`` holds the figures only.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from sglang_ppfix.observe.diagnosis import diagnose_reported
from sglang_ppfix.observe.diagnosis_config import Hints, build, given_point
from sglang_ppfix.observe.diagnosis_types import Finding, Report

DATA = Path(__file__).parents[1] / "data" / "logs" / "field_reports.json"
REPORTS: dict[str, dict[str, Any]] = {r["id"]: r for r in json.loads(DATA.read_text())}

#: The right verdict of each entry; None: too little is said for one.
RIGHT: dict[str, str | None] = {
    "the-case": "slots-not-filled",
    "R1": "slots-not-filled",  # 2 and 4 clients fill 1 and 2 of 4 stages' slots
    "R2": "slots-not-filled",
    "R3": "client-limited",  # 2 clients on 4 stages, one in each of 2 slots
    "R4": None,  # prefill only
    "R8": "slots-not-filled",  # 4 clients make 38 tok/s, one alone 13.7
    "R10": None,
    "R11": None,
    "R14": "slots-not-filled",  # slots of 1, 3 and 6 where 4 each would be even
    "R15": None,  # a hang, no figures
    "R16": None,
    "R17": None,  # prefill steps only
    "R19": None,
    "R22": None,
    "R23a": None,
    "R25": None,
    "R26": None,
}


def diagnosed(entry: dict[str, Any]) -> Report:
    split = tuple(int(n) for n in (entry.get("layers_split") or "").split(",") if n)
    hints = Hints(
        pp_size=entry["pp"],
        async_depth=entry.get("async_depth"),
        max_running_requests=entry.get("max_running"),
        cap=entry.get("cap"),
        layers=split,
        model=entry.get("model"),
    )
    config = build(hints, None, {}, (), False)
    config.chunked_prefill_size = entry.get("chunked_prefill")
    points = [
        given_point(config, point["clients"], point.get("tok_s"), _seen(point))
        for point in entry["reported"]
        if "clients" in point
    ]
    return diagnose_reported(config, points)


def _seen(point: dict[str, Any]) -> list[int]:
    if "loads_seen" in point:
        return list(point["loads_seen"])
    # With a throughput the slots follow from it; alone, the printed count is all.
    shown = point.get("running_req_in_log")
    return [shown] if shown and "tok_s" not in point else []


def finding(report: Report, verdict: str) -> Finding:
    (found,) = [f for f in report.findings if f.verdict.value == verdict]
    return found


def test_every_entry_has_its_right_answer_here() -> None:
    """Fails if an entry is added without saying what is right for it."""
    assert set(RIGHT) == set(REPORTS)


@pytest.mark.parametrize("name", RIGHT)
def test_verdict_or_what_is_missing(name: str) -> None:
    """Fails on a wrong verdict, a verdict out of nothing, or a silent refusal."""
    report = diagnosed(REPORTS[name])
    if RIGHT[name] is None:
        assert report.verdict.value == "not-enough-data"
        assert report.missing
    else:
        assert report.verdict.value == RIGHT[name]
        assert report.findings[0].evidence


def test_the_case_reproduces_its_figures() -> None:
    """Fails if the reported points alone do not give the published prediction."""
    report = diagnosed(REPORTS["the-case"])
    slots = finding(report, "slots-not-filled")
    balanced, default = slots.predictions
    assert 420 <= balanced.low < balanced.high <= 435
    assert 355 <= default.low < default.high <= 380.5
    assert report.main is not None
    assert report.main.occupancy == (8, 8, 8, 8)


def test_r1_even_filling_of_four_clients() -> None:
    """Fails if 4 clients on 4 stages are not promised what 4 slots of one bring.

    The author's own stage time gives 108 tok/s, 82 with the slow-down he saw.
    """
    slots = finding(diagnosed(REPORTS["R1"]), "slots-not-filled")
    assert slots.predictions[0].base == 67.6
    assert 82 <= slots.predictions[0].best <= 110


def test_r14_names_the_largest_slot() -> None:
    """Fails if counts of single slots are taken for the total."""
    report = diagnosed(REPORTS["R14"])
    assert report.main is not None
    assert report.main.in_flight is not None
    assert report.main.in_flight.value == 16
    assert report.main.largest is not None
    assert report.main.largest.value > 5


def test_r15_names_the_hang() -> None:
    """Fails if the known hang of small caps with chunks is not pointed out."""
    assert any("issue 23006" in note for note in diagnosed(REPORTS["R15"]).notes)


def test_r3_says_that_rows_come_next() -> None:
    """Fails if two rows on four stages pass without a word."""
    found = finding(diagnosed(REPORTS["R3"]), "memory-limited")
    assert "max_running_requests is 2" in found.evidence[0]
