"""``benchmarks/decision_cost`` still runs; how long anything took is not looked at."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks/decision_cost/measure.py"


def test_every_step_is_of_its_kind() -> None:
    """Catches hooks that read more of a scheduler than the benchmark's has, and steps
    that admit something else: it ends with an error then."""
    pytest.importorskip("sglang")
    # A process of its own: the script sets SGLang's global arguments.
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--repeats=2", "--steps=1"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "admits eight to an empty slot" in done.stdout
