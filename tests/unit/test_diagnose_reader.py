"""Files, streams, restarts, mixed and damaged logs."""

import gzip
import io
import random
import sys
from pathlib import Path

import diagnose_lines as lines
import pytest
from diagnose_lines import Shape
from diagnose_ring import Load, Ring, RingLog, affine
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sglang_ppfix.observe import log_stream, log_windows
from sglang_ppfix.observe.diagnosis_config import Hints
from sglang_ppfix.observe.diagnosis_logs import diagnose_logs
from sglang_ppfix.observe.log_reader import LogReader
from sglang_ppfix.observe.log_stream import LogInputError


def ring_log(**changes: object) -> RingLog:
    """A greedy PP4 server with 16 clients, whose log is read everywhere here."""
    ring = Ring(4, 32, affine(1.9, 1.8), **changes)  # type: ignore[arg-type]
    return RingLog(ring, [Load(16, 96)])


def read(path: Path, text: str | bytes) -> LogReader:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    reader = LogReader()
    reader.read([str(path)])
    return reader


def joined(log: RingLog) -> str:
    return "\n".join(log.log) + "\n"


def test_all_ways_of_reading_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails if gzip, standard input or small blocks lose or double lines."""
    data = joined(ring_log()).encode()
    plain, packed = tmp_path / "a.log", tmp_path / "a.log.gz"
    plain.write_bytes(data)
    packed.write_bytes(gzip.compress(data))
    whole = LogReader()
    whole.read([str(plain)])
    expected = whole.pipelines()[0]
    for block in (1 << 20, 997):
        monkeypatch.setattr(log_stream, "BLOCK_BYTES", block)
        for path in (str(plain), str(packed), "-"):
            piped = io.BufferedReader(io.BytesIO(data))  # type: ignore[arg-type]
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(piped))
            reader = LogReader()
            reader.read([path])
            (found,) = reader.pipelines()
            assert reader.batch_lines == whole.batch_lines
            assert reader.count.bytes == len(data)
            assert found.series.windows() == expected.series.windows()
            assert not reader.skipped.reasons


def test_a_file_that_is_not_there_is_one_line() -> None:
    """Fails if a wrong path ends in a traceback."""
    with pytest.raises(LogInputError, match=r"^cannot read /no/such: No such file"):
        LogReader().read(["/no/such"])


def test_a_truncated_gzip_is_one_line(tmp_path: Path) -> None:
    """Fails if a damaged archive ends in a traceback."""
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(joined(ring_log()).encode())[:-200])
    with pytest.raises(LogInputError, match="cannot read"):
        LogReader().read([str(path)])


def test_arguments_of_both_kinds(tmp_path: Path) -> None:
    """Fails if the repr of a dict (0.5.19 on) or of ServerArgs is not read."""
    for release in ("0.5.11", "0.5.23"):
        reader = read(tmp_path / "a", joined(ring_log(shape=Shape(release), cap=5)))
        (run,) = reader.runs()
        assert run.config.args["pp_size"] == 4
        assert run.config.args["pp_max_micro_batch_size"] == 5
        assert run.config.args["decode_log_interval"] == 40
        assert run.config.max_running_requests == 32
        assert run.config.kv_tokens == 100_000


def test_a_restart_in_one_file_is_another_run(tmp_path: Path) -> None:
    """Fails if a second start is added to the first server's figures."""
    first = ring_log()
    second = ring_log(cap=4)
    reader = read(tmp_path / "a", joined(first) + joined(second))
    before, after = reader.runs()
    assert before.config.args["pp_max_micro_batch_size"] is None
    assert after.config.args["pp_max_micro_batch_size"] == 4
    generated = [p.generated for p in reader.pipelines()]
    assert generated[0] == pytest.approx(first.total_generated, rel=0.06)
    assert generated[1] == pytest.approx(second.total_generated, rel=0.06)


def test_two_containers_in_one_file_are_two_servers(tmp_path: Path) -> None:
    """Fails if lines of two servers with prefixes are added up."""
    one, other = ring_log(), ring_log(seed=2, cap=4)
    mixed = [
        f"sglang-{i}  | {line}"
        for i, log in enumerate((one, other))
        for line in log.log
    ]
    mixed = [line.replace("sglang-0", "a").replace("sglang-1", "b") for line in mixed]
    mixed.sort(key=lambda line: line[5:24])
    reader = read(tmp_path / "a", "\n".join(mixed) + "\n")
    assert [run.source for run in reader.runs()] == ["a  |", "b  |"]
    for pipeline, log in zip(reader.pipelines(), (one, other), strict=True):
        assert pipeline.generated == pytest.approx(log.total_generated, rel=0.06)
        assert not pipeline.steps.divergences


def test_two_servers_that_cannot_be_told_apart_are_refused(tmp_path: Path) -> None:
    """Fails if two servers in one stream are diagnosed as one."""
    small = ring_log(http=False)
    large = RingLog(
        Ring(4, 32, affine(1.9, 1.8), http=False, announce=False),
        [Load(32, 64, prompt=lambda rng: 900)],
    )
    mixed = sorted(small.log + large.log, key=lambda line: line[1:20])
    path = tmp_path / "a"
    path.write_text("\n".join(mixed) + "\n")
    report = diagnose_logs([str(path)], Hints())
    assert report.verdict.value == "not-enough-data"
    assert "two servers" in report.missing[0]


def test_logs_of_two_nodes_are_one_pipeline(tmp_path: Path) -> None:
    """Fails if the stages of a second node count as another server."""
    log = ring_log()
    node = {"a": [], "b": []}  # type: dict[str, list[str]]
    for line in log.log:
        second = " PP2]" in line or " PP3]" in line
        node["b" if second else "a"].append(line)
        if "server_args" in line:
            node["b"].append(line)
    for name, part in node.items():
        (tmp_path / name).write_text("\n".join(part) + "\n")
    reader = LogReader()
    reader.read([str(tmp_path / "b"), str(tmp_path / "a")])
    (pipeline,) = reader.pipelines()
    assert sorted(pipeline.steps.ranks) == [0, 1, 2, 3]
    assert not pipeline.steps.divergences
    assert pipeline.steps.compared > 40


def test_rotated_logs_go_on(tmp_path: Path) -> None:
    """Fails if the parts of a rotated log, in any order, are separate runs."""
    whole = ring_log().log
    half = len(whole) // 2
    (tmp_path / "new").write_text("\n".join(whole[half:]) + "\n")
    (tmp_path / "old").write_text("\n".join(whole[:half]) + "\n")
    reader = LogReader()
    reader.read([str(tmp_path / "new"), str(tmp_path / "old")])
    (pipeline,) = reader.pipelines()
    expected = read(tmp_path / "whole", "\n".join(whole) + "\n").pipelines()[0]
    assert pipeline.generated == pytest.approx(expected.generated)


def test_a_clock_that_jumps_is_counted(tmp_path: Path) -> None:
    """Fails if a clock set back or forth makes tokens out of nothing."""
    log = ring_log().log
    shifted = []
    for number, line in enumerate(log):
        jump = 3600 if len(log) // 3 < number < len(log) // 2 else 0
        hour = int(line[12:14]) + jump // 3600
        shifted.append(line[:12] + f"{hour:02d}" + line[14:])
    straight = read(tmp_path / "a", "\n".join(log) + "\n").pipelines()[0]
    reader = read(tmp_path / "b", "\n".join(shifted) + "\n")
    assert reader.skipped.reasons == {"clock jumped": 1, "clock went back": 1}
    assert reader.pipelines()[0].generated <= straight.generated


def test_ranks_without_tags_are_taken_apart(tmp_path: Path) -> None:
    """Fails if lines of four ranks under one name look like four times the work."""
    log = ring_log()
    bare = "\n".join(
        line.replace("[", "", 1).replace("]", "", 1)
        if "server_args" in line
        else _untagged(line)
        for line in log.log
    )
    reader = read(tmp_path / "a", bare + "\n")
    (pipeline,) = reader.pipelines()
    assert pipeline.generated == pytest.approx(log.total_generated, rel=0.06)
    report = diagnose_logs([str(tmp_path / "a")], Hints(clients=16))
    assert report.verdict.value == "slots-not-filled"
    assert any("no PP tag" in note for note in report.notes)


def _untagged(line: str) -> str:
    stamp, _, message = line.partition("] ")
    return f"{stamp[1:20]} INFO {message}"


def test_windows_are_merged_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails if a long log takes more memory, or merging changes its sums."""
    text = joined(ring_log())
    fine = read(tmp_path / "a", text).pipelines()[0].series.windows()
    monkeypatch.setattr(log_windows, "MAX_WINDOWS", 8)
    coarse = read(tmp_path / "a", text).pipelines()[0].series.windows()
    assert len(coarse) <= 9 < len(fine)
    for name in ("tokens", "lines", "seconds", "prefill_tokens", "queue"):
        total = sum(getattr(w, name) for w in fine)
        assert sum(getattr(w, name) for w in coarse) == pytest.approx(total), name
    assert coarse[-1].kv == fine[-1].kv


@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.integers(0, 2**32), st.binary(min_size=1, max_size=200))
def test_damage_is_skipped_and_counted(tmp_path: Path, seed: int, junk: bytes) -> None:
    """Fails if junk, cut or doubled bytes anywhere raise, or turn the verdict."""
    rng = random.Random(seed)
    data = bytearray(DAMAGED)
    for _ in range(4):
        place = rng.randrange(len(data))
        how = rng.randrange(3)
        if how == 0:
            data[place:place] = junk
        elif how == 1:
            del data[place : place + rng.randrange(300)]
        else:
            data[place:place] = data[place : place + rng.randrange(400)]
    path = tmp_path / "a"
    path.write_bytes(bytes(data))
    report = diagnose_logs([str(path)], Hints())
    # Doubled lines of one rank are what a diverged rank would print.
    allowed = ("slots-not-filled", "ranks-diverged", "not-enough-data")
    assert report.verdict.value in allowed


DAMAGED = "\n".join(ring_log().log).encode()


def test_binary_lines_are_counted(tmp_path: Path) -> None:
    """Fails if binary junk between lines is not counted, or spoils its neighbours."""
    log = ring_log()
    data = joined(log).encode()
    middle = data.index(b"\n", len(data) // 2) + 1
    junk = bytes(range(256)) * 50 + b"\n"
    reader = read(tmp_path / "a", data[:middle] + junk + data[middle:])
    clean = read(tmp_path / "b", data)
    assert reader.skipped.reasons["binary line"] >= 1
    assert reader.batch_lines == clean.batch_lines


def test_shapes_may_change_in_the_middle(tmp_path: Path) -> None:
    """Fails if only the first shape of a log is read."""
    old, new = ring_log(shape=Shape("0.5.8.post1")), ring_log(shape=Shape("0.5.23"))
    reader = read(tmp_path / "a", joined(old) + joined(new))
    total = sum(p.generated for p in reader.pipelines())
    assert total == pytest.approx(old.total_generated + new.total_generated, rel=0.06)


def test_the_generator_prints_what_the_parser_expects() -> None:
    """Fails if the ring's own log is not one of SGLang's (a test of the tests)."""
    first = next(line for line in ring_log().log if "Decode" in line)
    assert first.startswith("[2026-")
    assert lines.decode(Shape(), 8, 1, 0.0, 1.0, 0) in (
        "Decode batch, #running-req: 8, #token: 1, token usage: 0.00, "
        "cuda graph: True, gen throughput (token/s): 1.00, #queue-req: 0"
    )


def test_a_collectors_time_stamps_make_no_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails if a time before every line makes every line a new writer."""
    monkeypatch.setattr("sglang_ppfix.observe.log_reader._MOST_ORIGINS", 16)
    log = ring_log()
    stamped = [
        f"{line[1:11]}T{line[12:20]}.{number:09d}Z {line}"
        for number, line in enumerate(log.log)
    ]
    reader = read(tmp_path / "a", "\n".join(stamped) + "\n")
    (run,) = reader.runs()
    (pipeline,) = reader.pipelines()
    assert run.config.args["pp_size"] == 4
    assert pipeline.generated == pytest.approx(log.total_generated, rel=0.06)
    assert pipeline.steps.compared > 40
    assert not pipeline.steps.divergences


def test_retractions_are_counted_once(tmp_path: Path) -> None:
    """Fails if the same retraction on every rank counts as many."""
    log = RingLog(Ring(4, 32, affine(1.9, 1.8)), [Load(32, 128)])
    middle = len(log.log) // 2
    stamp = log.log[middle][1:20]
    text = (
        "KV cache pool is full. Retract requests. #retracted_reqs: 2, "
        "#new_tokens_gained: 512, #new_token_ratio: 0.5000 -> 0.6000"
    )
    found = [f"[{stamp} PP{rank}] {text}" for rank in range(4)] * 3
    path = tmp_path / "a"
    path.write_text("\n".join([*log.log[:middle], *found, *log.log[middle:]]) + "\n")
    report = diagnose_logs([str(path)], Hints(clients=32))
    assert report.verdict.value == "memory-limited"
    assert any("6 requests were retracted" in e for e in report.findings[0].evidence)


@pytest.mark.parametrize("watchdog", [False, True])
def test_a_hang_right_at_the_divergence(tmp_path: Path, watchdog: bool) -> None:
    """Fails if a log that ends with one other batch is not understood as diverged."""
    log = ring_log().log
    last = next(i for i in range(len(log) - 1, 0, -1) if " PP0] Decode" in log[i])
    kept = log[: last + 4]
    kept[last + 2] = kept[last + 2].replace("#running-req: ", "#running-req: 1")
    if watchdog:
        kept.append(f"[{kept[-1][1:20]} PP0] Scheduler watchdog timeout (300 s)")
    path = tmp_path / "a"
    path.write_text("\n".join(kept) + "\n")
    report = diagnose_logs([str(path)], Hints())
    assert report.verdict.value == "ranks-diverged"
    assert report.confidence == (0.95 if watchdog else 0.6)
