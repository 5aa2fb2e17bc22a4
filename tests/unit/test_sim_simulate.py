"""Verb ``simulate``: what users type, and what they get."""

import json
from pathlib import Path
from typing import Any

import pytest
from advise_wishes import LLAMA, config_file

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
        (
            ["--load", "poisson", "--rate", "9"],
            "--load poisson: needs --rate and has no",
        ),
        (["--load", "no.jsonl"], "trace no.jsonl: cannot be read"),
        (["--lengths", "odd"], "allowed are fixed, uniform, long-tail"),
        (["--pp", "1"], "pp_size=1: allowed is 2 or more"),
        (["--cap", "0"], "cap=0: allowed is 1 or more"),
        (["--plot", "no/where.png"], "its folder does not exist"),
        (["--json", "no/where.json"], "--json no/where.json: its folder does not"),
        (["--gantt", "no/where.png"], "--gantt no/where.png: its folder does not"),
        (["--trace", "."], "--trace .: is a folder"),
        (["--layers", "8,8,8,8/8,8,8,7"], "--layers: splits of one model, but"),
        (["--preset", "the-case", "--layers", "8,8"], "allowed are 8 numbers"),
        (
            ["--preset", "the-case", "--layers", "4,4,4,4,4,4,4,1"],
            "--layers 4,4,4,4,4,4,4,1: sum to 29, preset the-case has 61 layers",
        ),
        (["--gpu", "h100"], "--gpu: needs --config"),
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


@pytest.mark.parametrize("option", ["--json", "--plot", "--gantt", "--trace"])
def test_files_are_refused_before_the_work(
    monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """Breaks when an hour of simulation ends in a folder that does not exist."""

    def never(*_: object) -> None:
        raise AssertionError("simulated")

    monkeypatch.setattr("sglang_ppfix.cli.simulate.run_cases", never)
    assert main(["simulate", *SMALL, option, "no/where.x"]) == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Breaks when what shows only while writing ends in a traceback."""
    assert main(["simulate", *SMALL, "--json", "/dev/full"]) == 2
    assert "cannot be written: [Errno 28]" in capsys.readouterr().err


def _trace(folder: Path) -> str:
    path = folder / "trace.jsonl"
    lines = [
        json.dumps({"timestamp": 1e4 * n, "input_length": 20, "output_length": 30})
        for n in range(24)
    ]
    path.write_text("\n".join(lines))
    return str(path)


def test_clients_make_a_closed_loop_of_a_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One request in ten seconds, or as fast as clients get answers. Breaks when
    --clients is ignored for a file, or applied where nobody asked."""
    words = ["--pp", "2", "--load", _trace(tmp_path), "--jobs", "1"]
    (own, *_) = _rows(capsys, *words)
    assert own["clients"] is None
    assert own["tok_s"] < 5
    rows = _rows(capsys, *words, "--clients", "1,4", "--policies", "balanced")
    assert [row["clients"] for row in rows] == [1, 4]
    assert 50 < rows[0]["tok_s"] < rows[1]["tok_s"]
    preset = ["--preset", "the-case", *words[2:], "--policies", "stock", "--no-bounds"]
    assert [row["clients"] for row in _rows(capsys, *preset)] == [None]
    both = [*words, "--clients", "4", "--rate", "2"]
    assert main(["simulate", *both]) == 2


def test_stage_times_from_a_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A quarter of 141 GB at three quarters of 4.8 TB/s, four times, is 40 ms and some
    overhead. Breaks when the shape, the GPU, the layers, --tp or the KV pool does not
    reach the simulation."""
    path = config_file(tmp_path, LLAMA)
    words = ["--config", str(path), "--pp", "4", "--jobs", "1", "--output-tokens", "30"]

    def run(*more: str) -> dict[str, Any]:
        policy = ["--policies", "balanced", "--clients", "1"]
        (row,) = _rows(capsys, *words, *policy, *more)
        return row

    one = run("--gpu", "h200")
    assert one["tpot_ms"] == pytest.approx(42, rel=0.15)
    assert one["tok_s_low"] < 0.85 * one["tok_s"]
    halved = run("--gpu", "h200", "--tp", "2", "--link", "nvlink4")["tpot_ms"]
    assert halved < 0.75 * one["tpot_ms"]
    assert run("--gpu", "h100")["tpot_ms"] > 1.25 * one["tpot_ms"]
    exact = run("--gpu", "h200", "--spread", "0")
    assert exact["tok_s_low"] == exact["tok_s"]
    uneven = run("--gpu", "h200", "--layers", "50,10,10,10", "--clients", "32")
    assert uneven["tok_s"] < 0.7 * run("--gpu", "h200", "--clients", "32")["tok_s"]
    # 4 x 48 GB leave room for a few thousand tokens.
    bound = run("--gpu", "l40s", "--clients", "64", "--prompt-tokens", "3000")
    free = ["--kv-tokens", "1000000"]
    free_row = run("--gpu", "l40s", "--clients", "64", "--prompt-tokens", "3000", *free)
    assert bound["largest"] < 0.8 * free_row["largest"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--config: needs --gpu"),
        (["--gpu", "h300"], "--gpu h300: allowed are a100-40"),
        (["--gpu", "h100", "--stage-ms", "2"], "it or --stage-ms, not both"),
        (["--gpu", "h100", "--preset", "R1"], "it or --preset, not both"),
        (["--gpu", "h100", "--tp", "3"], "64 attention heads cannot be split over 3"),
        (["--gpu", "l4"], "--gpu l4: 131 GiB of weights do not fit into 4 of them"),
        (["--gpu", "h100", "--pp", "81"], "--pp 81: the model has 80 layers"),
        (
            ["--gpu", "h100", "--layers", "8,8,8,8"],
            "--layers 8,8,8,8: sum to 32, the model has 80 layers",
        ),
    ],
)
def test_a_config_that_cannot_be_simulated(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    """Breaks when a value is ignored, or ends in a traceback."""
    path = config_file(tmp_path, LLAMA)
    assert main(["simulate", *SMALL, "--config", str(path), *words]) == 2
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
