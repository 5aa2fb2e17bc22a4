"""The command: schema, exit status, one-line errors, picture, plain text."""

import json
from pathlib import Path
from typing import Any

import pytest
from diagnose_ring import Load, Ring, RingLog, affine

from sglang_ppfix import cli
from sglang_ppfix.observe.diagnosis_text import WIDTH
from sglang_ppfix.observe.diagnosis_types import Verdict

VERDICTS = {
    "healthy",
    "slots-not-filled",
    "cap-too-small",
    "memory-limited",
    "client-limited",
    "uneven-layers",
    "async-depth",
    "prefill-stretched",
    "ranks-diverged",
    "no-pipeline",
    "not-enough-data",
}


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A log per exit status."""
    folder = tmp_path_factory.mktemp("logs")
    rings = {
        "ill": (Ring(4, 32, affine(1.9, 1.8)), Load(16, 96)),
        "healthy": (Ring(4, 32, affine(1.9, 1.8)), Load(32, 128)),
    }
    found = {}
    for name, (ring, load) in rings.items():
        found[name] = folder / f"{name}.log"
        found[name].write_text("\n".join(RingLog(ring, [load]).log) + "\n")
    found["empty"] = folder / "empty.log"
    found["empty"].write_text("nothing of SGLang's\n")
    return found


def data(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_the_verdict_words_are_permanent() -> None:
    """Fails if a verdict word changes: programs compare them."""
    assert {verdict.value for verdict in Verdict} == VERDICTS


@pytest.mark.parametrize(
    ("name", "verdict", "status"),
    [
        ("healthy", "healthy", 0),
        ("ill", "slots-not-filled", 1),
        ("empty", "not-enough-data", 2),
    ],
)
def test_exit_status_follows_the_verdict(
    name: str,
    verdict: str,
    status: int,
    logs: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Fails if a script cannot tell health, a finding and bad input apart."""
    assert cli.main(["diagnose", "--json", str(logs[name])]) == status
    assert data(capsys)["verdict"] == verdict


def test_the_schema(logs: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Fails if a field that programs read goes, or changes its kind."""
    cli.main(["diagnose", "--json", str(logs["ill"])])
    found = data(capsys)
    assert found["schema_version"] == 1
    assert set(found) == {
        "schema_version",
        "verdict",
        "confidence",
        "summary",
        "configuration",
        "load",
        "operating_points",
        "findings",
        "ruled_out",
        "missing",
        "notes",
        "input",
        "other_pipelines",
    }
    finding = found["findings"][0]
    assert set(finding) == {
        "verdict",
        "confidence",
        "title",
        "evidence",
        "predictions",
        "fixes",
    }
    assert 0 < finding["confidence"] <= 1
    assert set(finding["predictions"][0]["tok_s"]) == {"low", "best", "high"}
    assert set(finding["fixes"][0]) == {"set", "why"}
    assert found["configuration"]["pp_size"] == 4
    assert found["configuration"]["origin"]["cap"].startswith("SGLang's formula")
    assert set(found["load"]["in_flight"]) == {"value", "low", "high"}
    assert found["input"]["skipped"] == {}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "nothing to diagnose: give a log, --url or --point"),
        (["/no/such.log"], "cannot read /no/such.log: No such file or directory"),
        (["--point", "32"], "--point '32': must be CLIENTS=TOK_S, e.g. 32=248.1"),
        (["--point", "0=5"], "--point 0=5: must be CLIENTS=TOK_S, both above 0"),
        (["-", "--layers", "a,b"], "--layers 'a,b': must be a number, or one a stage"),
        (["-", "--pp-size", "0"], "--pp-size 0: must be 1 or more"),
        (["-", "--layers", "8,7", "--pp-size", "3"], "--layers names 2 stages"),
        (["-", "--seconds", "0"], "--seconds 0: must be 1 to 3600"),
        (["--url", "ftp://x"], "--url 'ftp://x': must start with http"),
        (["--url", "http://127.0.0.1:9"], "--url http://127.0.0.1:9: no answer"),
    ],
)
def test_bad_input_is_one_clear_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fails if a user's mistake ends in a traceback, or is not named."""
    assert cli.main(["diagnose", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"sglang-ppfix diagnose: {words}")
    assert error.count("\n") == 1


def test_points_need_no_log(capsys: pytest.CaptureFixture[str]) -> None:
    """Fails if measured throughput alone is not enough for the published case."""
    status = cli.main(
        [
            "diagnose",
            *("--pp-size", "8", "--async-depth", "8"),
            *("--max-running-requests", "64", "--model", "Kimi-K2.6"),
            *("--point", "1=34.3", "--point", "32=248.1"),
        ]
    )
    text = " ".join(capsys.readouterr().out.split())
    assert status == 1
    assert "stages balanced: 420 to 435 tok/s instead of 248.1" in text


def test_hints_win_over_the_log(
    logs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Fails if what the user says is overruled by the log."""
    cli.main(["diagnose", "--json", "--cap", "3", str(logs["ill"])])
    found = data(capsys)["configuration"]
    assert (found["cap"], found["origin"]["cap"]) == (3, "--cap")


@pytest.mark.parametrize("name", ["ill", "healthy", "empty"])
def test_text_is_plain_and_narrow(
    name: str, logs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Fails if a pipe gets colours, wide lines or anything beyond ASCII."""
    cli.main(["diagnose", str(logs[name])])
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= WIDTH


def test_a_terminal_gets_the_same_words(
    logs: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fails if rich wraps, marks up or drops a line of the report."""
    cli.main(["diagnose", str(logs["ill"])])
    plain = capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "100")
    cli.main(["diagnose", str(logs["ill"])])
    shown = capsys.readouterr().out
    assert [line.rstrip() for line in shown.splitlines()] == plain.splitlines()


def test_a_picture_on_request(
    logs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fails if no picture is written, or nothing to draw ends in a traceback."""
    pytest.importorskip("matplotlib")
    picture = tmp_path / "a.png"
    assert cli.main(["diagnose", str(logs["ill"]), "--plot", str(picture)]) == 1
    assert picture.read_bytes()[:4] == b"\x89PNG"
    for wrong, words in (
        ([str(logs["empty"]), "--plot", str(picture)], "there is no log"),
        ([str(logs["ill"]), "--plot", str(tmp_path / "a.xyz")], "xyz"),
        ([str(logs["ill"]), "--plot", "/no/such/a.png"], "No such file"),
    ):
        capsys.readouterr()
        assert cli.main(["diagnose", *wrong]) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1
