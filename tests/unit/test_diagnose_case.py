"""The report that the project starts from, as 0.5.11 would have logged it."""

import json
from pathlib import Path

import pytest
from diagnose_lines import Shape
from diagnose_ring import Load, Ring, RingLog

from sglang_ppfix import cli

#: Stage times of the case: one client 34.3 tok/s, 32 in 4 slots of 8 248.1 tok/s.
ALONE_S, LOADED_S, STAGES = 1 / 34.3, 32 / 248.1, 8


def stage_s(alone: float, loaded: float) -> dict[int, float]:
    """Seconds of a stage by size; sizes between are not run in this case."""
    rise = (loaded - alone) / STAGES / 7
    return {b: alone / STAGES + rise * (b - 1) for b in range(1, 9)}


def case_log(path: Path, loaded: float, http: bool) -> Path:
    """One client first, then 32: lines of 0.5.11 from eight stages."""
    times = stage_s(ALONE_S, loaded)
    ring = Ring(
        8,
        64,
        lambda stage, size: times[size],
        depth=8,
        hop_s=0.0,
        host_s=0.0,
        shape=Shape("0.5.11"),
        http=http,
    )
    loads = [
        Load(1, 3, output=lambda rng: 400),
        Load(32, 96, output=lambda rng: 400, at=60.0),
    ]
    path.write_text("\n".join(RingLog(ring, loads).log) + "\n")
    return path


def diagnosed(*arguments: str, capsys: pytest.CaptureFixture[str]) -> dict:  # type: ignore[type-arg]
    assert cli.main(["diagnose", "--json", *arguments]) == 1
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def said(found: dict, verdict: str) -> dict:  # type: ignore[type-arg]
    (finding,) = [f for f in found["findings"] if f["verdict"] == verdict]
    return finding


@pytest.mark.parametrize("http", [True, False])
def test_what_a_good_tool_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], http: bool
) -> None:
    """Fails if any of what cases/README.md expects is not said, out of the log alone.

    All 32 run, in 4 of 16 slots, 8 each; 4 of 8 stages wait; the log shows one slot;
    memory and graphs are not the limit; 420 to 435 tok/s balanced, 355 to 380 with the
    default split; change the split and drop the async depth.
    """
    path = case_log(tmp_path / "case.log", LOADED_S, http)
    found = diagnosed(str(path), "--model", "Kimi-K2.6", capsys=capsys)
    assert found["verdict"] == "slots-not-filled"
    load = found["load"]
    assert load["in_flight"]["value"] == pytest.approx(32, abs=0.6)
    assert (load["slots_filled"]["value"], load["slots_total"]) == (4, 16)
    assert load["occupancy"] == [8, 8, 8, 8]
    assert load["stages_waiting"] == 4
    assert load["logged_running_req"]["value"] == 8

    slots = said(found, "slots-not-filled")
    assert any("counts ONE slot" in words for words in slots["evidence"])
    assert any("4 of 8 stages wait" in words for words in slots["evidence"])
    assert any(fix["set"] == "SGLANG_PPFIX=1" for fix in slots["fixes"])
    assert any(fix["set"].endswith("micro-batch-size 4") for fix in slots["fixes"])
    balanced, default = (p["tok_s"] for p in slots["predictions"])
    assert balanced["low"] == pytest.approx(420, abs=6)
    assert balanced["high"] == pytest.approx(435, abs=6)
    assert default["low"] == pytest.approx(355, abs=6)
    assert default["high"] == pytest.approx(380, abs=6)

    layers = said(found, "uneven-layers")
    assert "7,7,7,8,8,8,8,8" in layers["evidence"][0]
    (fix,) = layers["fixes"]
    assert fix["set"] == "SGLANG_PP_LAYER_PARTITION=8,8,8,8,8,8,7,6"
    depth = said(found, "async-depth")
    assert depth["fixes"][0]["set"] == "--pp-async-batch-depth 0"
    sixteen = depth["predictions"][0]["tok_s"]
    assert 330 <= sixteen["low"] <= sixteen["high"] < balanced["low"]

    ruled_out = " ".join(found["ruled_out"])
    for cause in ("memory:", "graphs:", "admission:"):
        assert cause in ruled_out


def test_the_clients_rates_win_over_the_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fails if lines near 422 tok/s hide the 248.1 that the client measured."""
    path = case_log(tmp_path / "case.log", 32 / 422, http=True)
    found = diagnosed(
        str(path), "--model", "Kimi-K2.6", "--point", "1=34.3", "--point", "32=248.1",
        capsys=capsys,
    )  # fmt: skip
    balanced, default = (
        p["tok_s"] for p in said(found, "slots-not-filled")["predictions"]
    )
    assert (balanced["low"], balanced["high"]) == (
        pytest.approx(420, abs=6),
        pytest.approx(435, abs=6),
    )
    assert default["low"] == pytest.approx(355, abs=6)
    assert any("your client measured 248.1" in note for note in found["notes"])


def test_the_text_says_it_for_people(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fails if the text leaves a number out, or runs over 88 columns."""
    path = case_log(tmp_path / "case.log", LOADED_S, http=True)
    assert cli.main(["diagnose", str(path), "--model", "Kimi-K2.6"]) == 1
    text = capsys.readouterr().out
    flat = " ".join(text.split())
    assert text.startswith("slots-not-filled (confidence 0.9")
    assert "4 of 16 (8/8/8/8)" in flat
    assert "stages balanced: 420 to 435 tok/s instead of 247.8" in flat
    assert "7,7,7,8,8,8,8,8: 355 to 380 tok/s" in flat
    assert max(map(len, text.splitlines())) <= 88
    assert text.isascii()
