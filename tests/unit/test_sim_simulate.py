"""Verb ``simulate``: what users type, and what they get."""

import json
from pathlib import Path
from typing import Any

import pytest

from sglang_ppfix.cli import main

SMALL = ["--pp", "4", "--clients", "8", "--output-tokens", "30", "--jobs", "1"]


def _rows(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main(["simulate", *words, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert isinstance(rows, list)
    return rows


def test_the_case_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The fixed names. Breaks when a field is renamed, a row is missing, or a policy
    has two rows for one number of clients."""
    rows = _rows(capsys, "--preset", "the-case", "--clients", "32", "--jobs", "1")
    found = {(row["policy"], row["clients"]): row for row in rows}
    assert len(found) == len(rows)
    assert found["stock", 32]["tok_s"] == pytest.approx(248.1, rel=0.03)
    assert found["stock", 32]["slots"] == 4
    assert found["balanced", 32]["slots"] == 8
    for row in rows:
        assert row["tok_s_low"] <= row["tok_s"] <= row["tok_s_high"]


def test_a_sweep_has_a_row_per_combination(capsys: pytest.CaptureFixture[str]) -> None:
    """Breaks when a value of a sweep is dropped, or its label is missing."""
    rows = _rows(
        capsys, *SMALL, "--async-depth", "0,2", "--cap", "2,4", "--policies", "stock"
    )
    settings = {(row["async_depth"], row["cap"]) for row in rows}
    assert settings == {(0, 2), (0, 4), (2, 2), (2, 4)}


def test_layers_make_a_stage_slower(capsys: pytest.CaptureFixture[str]) -> None:
    """Breaks when --layers does not reach the stage times."""
    rows = _rows(capsys, *SMALL, "--layers", "8,8,8,8/14,6,6,6")
    balanced = [row for row in rows if row["policy"] == "balanced"]
    assert balanced[0]["tok_s"] > 1.15 * balanced[1]["tok_s"]


def test_json_to_a_file_and_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a file, people still get the table."""
    path = tmp_path / "rows.json"
    assert main(["simulate", *SMALL, "--json", str(path)]) == 0
    assert "balanced" in capsys.readouterr().out
    assert len(json.loads(path.read_text())["rows"]) == 2


def test_pictures_and_trace(tmp_path: Path) -> None:
    """Breaks when a file is not written, or the trace is not what Perfetto reads:
    events of one stage that overlap, or without a duration."""
    pytest.importorskip("matplotlib")
    plot, gantt, trace = (tmp_path / name for name in ("p.png", "g.png", "t.json"))
    words = ["--plot", str(plot), "--gantt", str(gantt), "--trace", str(trace)]
    assert main(["simulate", *SMALL, *words]) == 0
    for picture in (plot, gantt):
        assert picture.read_bytes().startswith(b"\x89PNG")
    events = json.loads(trace.read_text())["traceEvents"]
    lanes: dict[tuple[int, int], float] = {}
    for event in sorted(
        (e for e in events if e["ph"] == "X"), key=lambda event: event["ts"]
    ):
        lane = event["pid"], event["tid"]
        assert event["ts"] >= lanes.get(lane, 0.0) - 0.01
        lanes[lane] = event["ts"] + event["dur"]
    assert len(lanes) == 2 * 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--preset", "nope"], "preset 'nope': allowed are the-case"),
        (["--policies", "fair"], "--policies fair: allowed are stock, balanced"),
        (["--stage-ms", "fast"], "--stage-ms 'fast': allowed are milliseconds"),
        (["--stage-ms", "no.json"], "--stage-ms no.json: cannot be read"),
        (["--layers", "8,8"], "--layers 8,8: allowed are 4 numbers"),
        (["--load", "poisson"], "--load poisson: needs --rate"),
        (["--load", "no.jsonl"], "trace no.jsonl: cannot be read"),
        (["--lengths", "odd"], "allowed are fixed, uniform, long-tail"),
        (["--pp", "1"], "pp_size=1: allowed is 2 or more"),
        (["--cap", "0"], "cap=0: allowed is 1 or more"),
        (["--plot", "no/where.png"], "its folder does not exist"),
        (["--kv-tokens", "50"], "kv_tokens=50 cannot hold it"),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    """Breaks when a user's mistake ends in a traceback, or is not noticed."""
    assert main(["simulate", *SMALL, *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.strip().count("\n") == 0


def test_a_profile_measured_by_the_plugin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What /server_info shows of a server with the plugin, wherever it is nested."""
    ranks = [
        {"pp_rank": rank, "decode_ms": {"1": 5.0 + rank, "8": 12.0 + rank}}
        for rank in range(4)
    ]
    path = tmp_path / "info.json"
    path.write_text(json.dumps({"internal_states": [{"ppfix": {"ranks": ranks}}]}))
    rows = _rows(capsys, *SMALL, "--stage-ms", str(path))
    assert rows[1]["tok_s"] > rows[0]["tok_s"]
    one = _rows(capsys, *SMALL, "--stage-ms", str(path), "--clients", "1")
    # 5 + 6 + 7 + 8 ms, and some latency.
    assert one[0]["tpot_ms"] == pytest.approx(26 + 3, abs=1.5)


def test_a_profile_of_the_lab(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """docs/lab.md has the format; one stage stands for all."""
    stage = {"decode": [[1, 4.0], [8, 9.0]], "prefill": "5+0.1n"}
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"hop_ms": 0.2, "stages": [stage]}))
    one = _rows(capsys, *SMALL, "--stage-ms", str(path), "--clients", "1")
    assert one[0]["tpot_ms"] == pytest.approx(4 * 4.0 + 3 * 0.2 + 2.2, abs=1.0)
