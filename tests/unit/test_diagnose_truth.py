"""Logs whose truth is known: the ring model writes them, diagnose reads them."""

import random
import statistics
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from diagnose_lines import RELEASES, Shape
from diagnose_ring import Load, Ring, RingLog, affine

from sglang_ppfix.observe.diagnosis_config import Hints
from sglang_ppfix.observe.diagnosis_logs import diagnose_logs
from sglang_ppfix.observe.diagnosis_types import Report

STEEP = affine(1.9, 1.8)


def between(low: int, high: int):  # type: ignore[no-untyped-def]
    return lambda rng: rng.randint(low, high)


def exponential(mean: float):  # type: ignore[no-untyped-def]
    return lambda rng: max(int(rng.expovariate(1 / mean)), 8)


@dataclass
class Case:
    """A server, its load, and the verdict that is right."""

    name: str
    verdict: str
    ring: Ring
    load: Load
    #: Whether the number in flight can be known without HTTP lines or hints.
    tells: bool = True


VARIED = between(50, 300)
UNEVEN = lambda s, b: (1.9 + 1.8 * b) / 1e3 * (1.6 if s == 3 else 1.0)  # noqa: E731
CASES = [
    Case("greedy-8", "slots-not-filled", Ring(4, 32, STEEP), Load(8, 48)),
    Case("greedy-16", "slots-not-filled", Ring(4, 32, STEEP), Load(16, 64)),
    Case("greedy-24", "slots-not-filled", Ring(4, 32, STEEP), Load(24, 96)),
    Case("greedy-pp8", "slots-not-filled", Ring(8, 64, STEEP), Load(32, 128)),
    Case(
        "greedy-lengths",
        "slots-not-filled",
        Ring(4, 32, STEEP),
        Load(16, 200, output=VARIED, stagger_s=1.0),
    ),
    Case(
        "greedy-exponential",
        "slots-not-filled",
        Ring(8, 64, STEEP),
        Load(16, 400, output=exponential(150), stagger_s=0.3),
    ),
    Case("full", "healthy", Ring(4, 32, STEEP), Load(32, 128)),
    Case(
        "full-lengths",
        "healthy",
        Ring(4, 32, STEEP),
        Load(32, 300, output=VARIED, stagger_s=1.0),
    ),
    Case("even-8", "healthy", Ring(4, 32, STEEP, policy="even"), Load(8, 48)),
    Case(
        "even-9",
        "healthy",
        Ring(4, 32, STEEP, policy="even"),
        Load(9, 200, output=VARIED, stagger_s=1.0),
    ),
    Case(
        "even-16",
        "healthy",
        Ring(4, 32, STEEP, policy="even"),
        Load(16, 200, output=VARIED, stagger_s=1.0),
    ),
    Case(
        "even-pp8-30",
        "healthy",
        Ring(8, 64, STEEP, policy="even"),
        Load(30, 300, output=VARIED, stagger_s=1.0),
    ),
    Case("capped", "cap-too-small", Ring(4, 32, STEEP, cap=4), Load(40, 200)),
    Case(
        "floor-cap",
        "cap-too-small",
        Ring(8, 60, STEEP),
        Load(80, 400, output=VARIED, stagger_s=1.0),
    ),
    Case(
        "rows",
        "memory-limited",
        Ring(4, 32, STEEP),
        Load(60, 300, output=VARIED, stagger_s=1.0),
    ),
    Case(
        "starved",
        "memory-limited",
        Ring(4, 32, STEEP, kv_tokens=3000, policy="even"),
        Load(32, 300, output=VARIED, stagger_s=1.0),
    ),
    Case(
        "starved-greedy",
        "memory-limited",
        Ring(4, 32, STEEP, kv_tokens=3000),
        Load(32, 300, output=VARIED, stagger_s=1.0),
    ),
    Case(
        "two-clients",
        "client-limited",
        Ring(4, 32, STEEP, policy="even"),
        Load(2, 60, output=VARIED),
    ),
    Case("one-client", "client-limited", Ring(4, 32, STEEP), Load(1, 12)),
    Case(
        "prefill",
        "prefill-stretched",
        Ring(4, 32, STEEP, prefill_s=lambda s, n: 5e-5 * n),
        Load(32, 300, output=VARIED, prompt=between(1400, 1600), stagger_s=1.0),
    ),
    Case(
        "uneven",
        "uneven-layers",
        Ring(4, 32, UNEVEN, policy="even", shape=Shape(timer=True)),
        Load(16, 200, output=VARIED, stagger_s=1.0),
    ),
    Case(
        "diverged",
        "ranks-diverged",
        Ring(4, 32, STEEP, wrong_rank=2, wrong_from=20.0),
        Load(16, 200, output=VARIED, stagger_s=1.0),
    ),
    Case(
        "deep-greedy",
        "slots-not-filled",
        Ring(4, 64, STEEP, depth=4),
        Load(16, 96),
    ),
    Case(
        "deep-spread",
        "async-depth",
        Ring(4, 32, affine(8.0, 0.2), depth=12, cap=2),
        Load(32, 128),
    ),
]


def written(case: Case, path: Path, **changes: object) -> tuple[RingLog, Path]:
    """Run the case's ring and write its log."""
    log = RingLog(replace(case.ring, **changes), [case.load])  # type: ignore[arg-type]
    path.write_text("\n".join(log.log) + "\n")
    return log, path


def truth(log: RingLog) -> tuple[float, float, float]:
    """In flight, filled slots and largest micro-batch while loaded."""
    most = max(sum(t.slots) for t in log.truth)
    loaded = [t.slots for t in log.truth if sum(t.slots) >= 0.5 * most]
    number = statistics.median(sum(slots) for slots in loaded)
    near = [slots for slots in loaded if abs(sum(slots) - number) <= 0.2 * number]
    filled = statistics.fmean(sum(n > 0 for n in slots) for slots in near)
    return number, filled, statistics.fmean(max(slots) for slots in near)


def check(report: Report, case: Case, log: RingLog, within: float = 1.0) -> None:
    assert report.verdict.value == case.verdict, report.summary
    if case.verdict == "ranks-diverged":
        return
    number, filled, largest = truth(log)
    point = report.main
    assert point is not None
    assert point.in_flight is not None
    assert point.filled is not None
    assert point.largest is not None
    assert point.in_flight.value == pytest.approx(number, abs=within)
    assert point.filled.value == pytest.approx(filled, abs=0.5)
    assert point.largest.value == pytest.approx(largest, abs=1.0)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verdict_and_counts(case: Case, tmp_path: Path) -> None:
    """Fails if a verdict is wrong, or a count is off by more than one request."""
    log, path = written(case, tmp_path / "a")
    check(diagnose_logs([str(path)], Hints()), case, log)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_without_http_lines_clients_are_enough(case: Case, tmp_path: Path) -> None:
    """Fails if the verdict hangs on access lines, which streaming servers lack."""
    log, path = written(case, tmp_path / "a", http=False)
    clients = case.load.clients
    check(diagnose_logs([str(path)], Hints(clients=clients)), case, log, within=1.5)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", ["greedy-lengths", "even-16", "capped"])
def test_every_release(release: str, name: str, tmp_path: Path) -> None:
    """Fails if a release's lines, printed when they are, give another verdict."""
    (case,) = [case for case in CASES if case.name == name]
    shape = Shape(release, tp=2, milliseconds=release != "0.5.8.post1")
    log, path = written(case, tmp_path / "a", shape=shape)
    check(diagnose_logs([str(path)], Hints()), case, log)


@pytest.mark.parametrize("name", ["greedy-16", "greedy-lengths", "even-16", "full"])
def test_a_tail_of_a_log_needs_the_clients(name: str, tmp_path: Path) -> None:
    """Fails if a log without its start is guessed at, or not understood with a hint."""
    (case,) = [case for case in CASES if case.name == name]
    log, path = written(case, tmp_path / "a", http=False)
    kept = log.log[len(log.log) // 3 :]
    path.write_text("\n".join(kept) + "\n")
    bare = diagnose_logs([str(path)], Hints())
    if bare.verdict.value == "not-enough-data":
        assert any("--clients" in words for words in bare.missing)
    else:
        assert bare.verdict.value == case.verdict
    hints = Hints(clients=case.load.clients, max_running_requests=case.ring.max_running)
    check(diagnose_logs([str(path)], hints), case, log, within=1.5)


def test_plugin_lines_are_the_truth(tmp_path: Path) -> None:
    """Fails if occupancy in the plugin's lines is not taken over every estimate."""
    (case,) = [case for case in CASES if case.name == "even-9"]
    log, path = written(case, tmp_path / "a", http=False, plugin_lines=True)
    report = diagnose_logs([str(path)], Hints())
    check(report, case, log)
    assert report.main is not None
    assert "plugin" in report.main.source
    assert report.main.confidence > 0.95


def test_healthy_is_not_called_ill(tmp_path: Path) -> None:
    """Fails on a cry of wolf: 8/8/8/8 on PP4 prints #running-req: 8 with 32 clients."""
    (case,) = [case for case in CASES if case.name == "full"]
    _, path = written(case, tmp_path / "a")
    for hints in (Hints(), Hints(clients=32), Hints(clients=32, model="DeepSeek-V3.1")):
        report = diagnose_logs([str(path)], hints)
        assert report.verdict.value == "healthy"
        assert report.main is not None
        assert report.main.logged is not None
        assert report.main.logged.value == 8


def test_a_flat_stage_time_is_nothing_to_fix(tmp_path: Path) -> None:
    """Fails if empty slots are called ill where filling them gains nothing."""
    ring = Ring(4, 32, affine(12.0, 0.005))
    loads = [Load(1, 6), Load(16, 64, at=120.0)]
    path = tmp_path / "a"
    path.write_text("\n".join(RingLog(ring, loads).log) + "\n")
    report = diagnose_logs([str(path)], Hints())
    assert report.verdict.value == "healthy"
    assert report.findings[0].verdict.value == "slots-not-filled"
    assert report.findings[0].predictions[0].gain < 1.03


def test_predictions_hold_in_the_ring(tmp_path: Path) -> None:
    """Fails if the promised gain is not what even filling brings in the same ring."""
    stage = affine(3.0, 1.2)
    loads = [Load(1, 6), Load(24, 240, output=VARIED, at=60.0)]
    path = tmp_path / "a"
    path.write_text("\n".join(RingLog(Ring(8, 64, stage), loads).log) + "\n")
    report = diagnose_logs([str(path)], Hints())
    (finding,) = [f for f in report.findings if f.verdict.value == "slots-not-filled"]
    promised = finding.predictions[0]
    even = RingLog(Ring(8, 64, stage, policy="even"), loads)
    most = max(sum(t.slots) for t in even.truth)
    reached = statistics.fmean(
        t.tok_s for t in even.truth if sum(t.slots) >= 0.85 * most
    )
    assert promised.low * 0.95 <= reached <= promised.high * 1.05
    assert promised.gain > 1.3


def test_data_parallel_ranks_are_separate_pipelines(tmp_path: Path) -> None:
    """Fails if the pipelines of two data-parallel ranks are mixed."""
    logs = []
    for dp in (0, 1):
        ring = Ring(4, 32, STEEP, shape=Shape(dp=dp), seed=dp, announce=dp == 0)
        logs.append(RingLog(ring, [Load(16, 64)]))
    mixed = sorted(
        (line for log in logs for line in log.log), key=lambda line: line[1:20]
    )
    path = tmp_path / "a"
    path.write_text("\n".join(mixed) + "\n")
    report = diagnose_logs([str(path)], Hints(clients=32))
    assert report.verdict.value == "slots-not-filled"
    assert report.main is not None
    assert report.main.in_flight is not None
    assert report.main.in_flight.value == pytest.approx(16, abs=1)
    assert [other["verdict"] for other in report.others] == ["slots-not-filled"]


def test_speculative_decoding_counts_accepted_tokens(tmp_path: Path) -> None:
    """Fails if accepted drafts make micro-batches look larger than they are."""
    ring = Ring(4, 32, STEEP, shape=Shape(spec=2.0))
    log = RingLog(ring, [Load(16, 64)])
    doubled = []
    for line in log.log:
        if "gen throughput" in line:
            before, rate, after = _split_rate(line)
            line = f"{before}{2 * rate:.2f}{after}"
        doubled.append(line)
    path = tmp_path / "a"
    path.write_text("\n".join(doubled) + "\n")
    report = diagnose_logs([str(path)], Hints(clients=16))
    assert report.main is not None
    assert report.main.mean_micro_batch is not None
    assert report.main.mean_micro_batch.value == pytest.approx(8, abs=0.4)
    assert any("speculative" not in note for note in report.notes) or not report.notes


def _split_rate(line: str) -> tuple[str, float, str]:
    before, key, rest = line.partition("gen throughput (token/s): ")
    number, comma, after = rest.partition(",")
    return before + key, float(number), comma + after


def test_prefill_only_says_what_is_missing(tmp_path: Path) -> None:
    """Fails if a log without decode lines gets a verdict about decode slots."""
    ring = Ring(4, 32, STEEP)
    log = RingLog(ring, [Load(8, 64, output=lambda rng: 2)])
    path = tmp_path / "a"
    path.write_text("\n".join(log.log) + "\n")
    report = diagnose_logs([str(path)], Hints())
    assert report.verdict.value == "not-enough-data"
    assert "decode lines" in report.missing[0]


def test_no_pipeline(tmp_path: Path) -> None:
    """Fails if a server without PP tags is diagnosed as a pipeline."""
    log = RingLog(Ring(2, 16, STEEP, announce=False), [Load(8, 32)])
    path = tmp_path / "a"
    lines_ = [line.replace(" PP0]", "]") for line in log.log if " PP1]" not in line]
    path.write_text("\n".join(lines_) + "\n")
    assert diagnose_logs([str(path)], Hints()).verdict.value == "no-pipeline"


def test_random_servers_never_raise(tmp_path: Path) -> None:
    """Fails if any combination of size, policy and load ends in an exception."""
    rng = random.Random(3)
    for number in range(12):
        pp = rng.choice((2, 3, 4, 8))
        ring = Ring(
            pp,
            rng.choice((1, 2, 7, 16, 64)),
            affine(rng.uniform(0, 10), rng.uniform(0.01, 3)),
            depth=rng.choice((0, 1, 8)),
            cap=rng.choice((None, 1, 3)),
            policy=rng.choice(("stock", "even")),
            chunk=rng.choice((256, 8192)),
            http=rng.random() < 0.5,
            seed=number,
        )
        load = Load(rng.choice((1, 3, 20)), 40, between(8, 900), VARIED, stagger_s=1.0)
        path = tmp_path / "a"
        path.write_text("\n".join(RingLog(ring, [load]).log) + "\n")
        report = diagnose_logs([str(path)], Hints())
        assert report.summary
