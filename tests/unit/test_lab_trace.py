"""Traces are read as written, and counted as the documentation says."""

import json

import pytest
from lab_outcome import PP, TOKENS, ring, write_trace

from sglang_ppfix.lab.device import Kernel
from sglang_ppfix.lab.profile_file import stage_profile
from sglang_ppfix.lab.rank import DeviceFile, start_rank
from sglang_ppfix.lab.trace import (
    Forward,
    bubble_share,
    largest_micro_batch,
    read_traces,
    slots_filled,
    token_times,
)


def test_what_a_rank_writes_is_read_back(tmp_path) -> None:
    """Writer and reader live in different files; a swapped column would show here."""
    path = tmp_path / "device.json"
    DeviceFile(stage_profile("20+10b", 2), str(tmp_path)).write(path)
    rank = start_rank(path, 1)
    rank.slot, rank.rids, rank.decoding = 3, ["a", "b"], 0
    first = rank.launch_kernel(requests=2, tokens=2, decode=True, mixed=False)
    second = rank.launch_kernel(requests=2, tokens=50, decode=False, mixed=False)
    rank.decoding = 1
    rank.launch_kernel(requests=2, tokens=31, decode=False, mixed=True)
    (forwards,) = read_traces(tmp_path)
    assert [f.mode for f in forwards] == ["decode", "prefill", "mixed"]
    assert [f.tokens for f in forwards] == [2, 50, 31]
    assert {(f.rank, f.slot, f.rids) for f in forwards} == {(1, 3, ("a", "b"))}
    for kernel, forward in zip((first, second), forwards, strict=False):
        read = Kernel(forward.launched, forward.start, forward.end)
        assert read == pytest.approx(kernel, abs=1e-5)
    lasted = [f.end - f.start for f in forwards]
    assert lasted == pytest.approx([0.040, 0.045, 0.030 + 0.009], abs=1e-5)


def test_stage_times_change_while_a_rank_runs(tmp_path) -> None:
    """Catches a rank that keeps the times it began with."""
    path = tmp_path / "device.json"
    DeviceFile(stage_profile("20", 2), str(tmp_path)).write(path)
    rank = start_rank(path, 0)
    rank.launch_kernel(requests=4, tokens=4, decode=True, mixed=False)
    DeviceFile(stage_profile("20+10b", 2), str(tmp_path)).write(path)
    rank.launch_kernel(requests=4, tokens=4, decode=True, mixed=False)
    (forwards,) = read_traces(tmp_path)
    lasted = [f.end - f.start for f in forwards]
    assert lasted == pytest.approx([0.020, 0.060], abs=1e-5)


def test_a_line_that_is_being_written_is_left_out(tmp_path) -> None:
    """Reading a live server's trace must not fail on its last line."""
    line = json.dumps([0, "decode", 1, 1.0, 1.0, 2.0, ["a"]])
    write_trace(tmp_path, 0, [line + "\n", line[:20]])
    assert len(read_traces(tmp_path)[0]) == 1


def test_ranks_come_in_order_and_windows_cut(tmp_path) -> None:
    """Sorting names as text would put rank 10 before rank 2."""
    for rank in (10, 2, 0):
        lines = [
            json.dumps([0, "decode", 1, t, t, t + 1, ["a"]]) + "\n" for t in (1.0, 5.0)
        ]
        write_trace(tmp_path, rank, lines)
    found = read_traces(tmp_path, begin=4.0)
    assert [[f.rank for f in trace] for trace in found] == [[0], [2], [10]]


def test_counts_of_a_ring() -> None:
    """Counting prefills as filled slots, or requests of the rank, would fail here."""
    traces = ring([2, 2, 1], begin=5.0, step_s=0.1)
    assert slots_filled(traces[0]) == {0: TOKENS - 1, 1: TOKENS - 1, 2: TOKENS - 1}
    assert largest_micro_batch(traces[0]) == 2
    assert largest_micro_batch([]) == 0
    # Three of four slots, and the last lap ends with the third: 3 of 4 less a little.
    assert bubble_share(traces[0]) == pytest.approx(1 - 18 / (4 * TOKENS - 1))
    assert bubble_share([]) == 0
    last = token_times(traces[-1])
    assert len(last) == 5
    assert len(last["e"]) == TOKENS


def test_a_request_counts_in_every_forward_it_is_in() -> None:
    """Requests of one forward are its rids, not its tokens."""
    forward = Forward(0, 1, "prefill", 128, 0.0, 0.0, 1.0, ("a", "b"))
    assert forward.requests == 2
    assert PP == 4
