"""The simulator against what real SGLang did in the lab (recorded runs)."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "simulator"
RUNS = FOLDER / "lab_runs.json"
if not RUNS.exists():
    pytest.skip("benchmarks/simulator is not here", allow_module_level=True)


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "against_lab", FOLDER / "against_lab.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up while they are made.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


against_lab = _load()
_RUNS: list[dict[str, Any]] = json.loads(RUNS.read_text())


def _name(run: dict[str, Any]) -> str:
    return f"{run['setting']['name']}-{run['arm']}-{run['workload']['name']}"


@pytest.mark.parametrize("run", _RUNS, ids=_name)
def test_every_admission_is_sglangs(run: dict[str, Any]) -> None:
    """Turn, slot and requests of every prefill, chunks included, given the turns in
    which requests arrived. Breaks with any change of the simulated scheduler, or of the
    rule, that SGLang with the plugin would not make."""
    seen = [(turn, slot, rids) for turn, slot, rids in run["admissions"]]
    assert against_lab.decisions(run) == seen


@pytest.mark.parametrize("run", _RUNS, ids=_name)
def test_throughput_is_within_5_percent(run: dict[str, Any]) -> None:
    """Given the load and the stage times only (a range in closed loops, see there).
    Breaks when the clock of the ring waits for something that SGLang does not wait for,
    or forgets a wait."""
    setting = against_lab.Setting(**against_lab._tuples(run["setting"]))
    simulated = against_lab.simulated_tok_s(setting, run)
    assert against_lab.agrees(sum(run["outputs"]) / run["seconds"], simulated)


def test_the_recorded_runs_cover_what_matters() -> None:
    """Twelve loads or more, two to eight stages, both arms, depth, chunks."""
    assert len(_RUNS) >= 12
    settings = [run["setting"] for run in _RUNS]
    assert {2, 4, 8} <= {setting["pp"] for setting in settings}
    assert {0, 2} <= {setting["depth"] for setting in settings}
    assert {run["arm"] for run in _RUNS} == {"stock", "balanced"}
    loads = {run["workload"]["name"] for run in _RUNS}
    assert {"burst", "closed", "poisson", "drain", "chunked"} <= loads
    assert not any(run["wrong"] for run in _RUNS)
