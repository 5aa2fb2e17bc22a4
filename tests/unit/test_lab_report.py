"""Figures, picture and trace of an outcome, and that bad outcomes are said aloud."""

import io
import json

import pytest
from lab_outcome import PP, TOKENS, outcome
from rich.console import Console

from sglang_ppfix.lab import picture
from sglang_ppfix.lab.errors import LabError
from sglang_ppfix.lab.perfetto import chrome_trace
from sglang_ppfix.lab.report import SCHEMA_VERSION, sentence, table, to_json


def shown(found) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(table(found))
    return console.file.getvalue()


def test_json_rows_hold_the_fixed_names() -> None:
    """Scripts rely on these names and on what they mean."""
    content = json.loads(json.dumps(to_json(outcome())))
    assert content["schema_version"] == SCHEMA_VERSION
    assert content["spread"] == {"stock": 0, "plugin": 0}
    assert [row["clients"] for row in content["rows"]] == [1, 4, 8]
    row = content["rows"][2]
    # One slot of 8 takes 4*100 ms a lap, four slots of 2 take 4*40 ms.
    assert row["stock_tok_s"] == pytest.approx(8 * TOKENS / (TOKENS * 0.4), rel=0.02)
    assert row["ratio"] == pytest.approx(
        row["plugin_tok_s"] / row["stock_tok_s"], abs=0.002
    )
    assert row["efficiency"] == pytest.approx(
        row["plugin_tok_s"] / row["bound_tok_s"], abs=0.002
    )
    assert row["outputs_identical"] is True
    assert row["stock"]["slots_filled"] == 1
    assert row["plugin"]["slots_filled"] == 4
    assert row["plugin"]["largest_micro_batch"] == 2
    assert row["stock"]["tpot_ms"]["mean"] == pytest.approx(400, rel=0.01)
    assert row["stock"]["bubble_share"] == pytest.approx(0.71, abs=0.05)
    assert row["plugin"]["spread"] == 0


def test_one_arm_alone_has_no_ratio() -> None:
    """A ratio against nothing must be null, not 0 or 1."""
    found = outcome(arms=("stock",))
    row = to_json(found)["rows"][1]
    assert (row["plugin"], row["plugin_tok_s"], row["ratio"]) == (None, None, None)
    assert row["stock_efficiency"] > 0
    assert "stock made" in sentence(found)
    assert "NO" not in shown(found)


def test_other_outputs_are_said_in_every_form() -> None:
    """An output that differs must not hide behind a good ratio."""
    found = outcome(plugin_output=499)
    row = to_json(found)["rows"][0]
    assert row["outputs_identical"] is False
    assert row["plugin"]["wrong_tokens"]
    assert "NO" in shown(found)
    assert "WRONG" in sentence(found)


def test_the_sentence_tells_the_best_and_the_worst_row() -> None:
    """Telling the best row only would hide a loss elsewhere."""
    text = sentence(outcome())
    assert "With 8 clients stock filled 1.0 of 4 slots" in text
    assert "lowest ratio was 1.00, with 1 clients" in text
    assert "Every token of 26 outputs is right" in text


def test_the_trace_holds_every_forward_in_microseconds() -> None:
    """Perfetto drops events without a duration; times must be relative."""
    found = outcome(clients=(4,))
    events = chrome_trace(found)["traceEvents"]
    forwards = [event for event in events if event.get("cat")]
    expected = sum(len(trace) for run in found.runs for trace in run.traces)
    assert len(forwards) == expected == PP * TOKENS * (1 + 4)
    assert all(event["dur"] > 0 and event["ts"] >= 0 for event in forwards)
    assert {event["pid"] for event in forwards} == {1, 2}
    first = min(forwards, key=lambda event: (event["pid"], event["ts"]))
    assert (first["ts"], first["dur"]) == (0, 60_000)
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert names == ["stock 1", "plugin 1"]


def test_the_picture_shows_the_middle_row(tmp_path) -> None:
    """The row that is named must be the row that is drawn; the file must be a PNG."""
    pytest.importorskip("matplotlib")
    path = tmp_path / "lab.png"
    assert picture.draw(outcome(), path) == 4
    assert path.read_bytes().startswith(b"\x89PNG")
    assert picture.draw(outcome(), path, clients=8) == 8
    with pytest.raises(LabError, match="with 5 clients"):
        picture.draw(outcome(), path, clients=5)
