"""Logs of real SGLang 0.5.23 servers whose truth is known.

Written by ``benchmarks/diagnose/known_truth.py``: real servers on the CPU with an
emulated device; the truth comes from the device's own trace, not from the log.
"""

import json
from pathlib import Path

import pytest

from sglang_ppfix.observe.diagnosis_config import Hints
from sglang_ppfix.observe.diagnosis_logs import diagnose_logs

FOLDER = Path(__file__).parents[1] / "data" / "logs" / "lab"
RUNS = sorted(path.stem for path in FOLDER.glob("*.json"))


@pytest.mark.parametrize("run", RUNS)
def test_verdict_and_count(run: str) -> None:
    """Fails if a real log gets a wrong verdict, or a count off by more than one."""
    truth = json.loads((FOLDER / f"{run}.json").read_text())
    report = diagnose_logs([str(FOLDER / f"{run}.log.gz")], Hints())
    assert report.verdict.value == truth["verdict"]
    assert not report.input["skipped"]
    if report.verdict.value == "ranks-diverged":
        return
    point = report.main
    assert point is not None
    assert point.in_flight is not None
    assert point.filled is not None
    assert point.in_flight.value == pytest.approx(truth["in_flight"], abs=1.0)
    assert point.filled.value == pytest.approx(truth["slots_filled"], abs=0.6)


def test_there_are_enough_runs() -> None:
    """Fails if runs are taken away."""
    assert len(RUNS) >= 40
