"""Laps and the stage clock, on a clock that the test moves."""

from sglang_ppfix.observe.laps import CPU_EVERY, Laps
from sglang_ppfix.observe.stage_clock import StageClock


def run_laps(laps, clock, sizes, took, decode=True, times=1):
    """Let the ring go round; every lap takes ``took`` seconds."""
    for _ in range(times):
        clock[0] += took
        for slot, size in enumerate(sizes):
            laps.end_turn(slot, size, decode, spread=len(sizes))


def test_laps_count_only_work():
    """Catches idle laps that make the mean lap look short."""
    clock = [0.0]
    laps = Laps(4, lambda: clock[0])
    run_laps(laps, clock, [0, 0, 0, 0], 0.001, times=50)
    run_laps(laps, clock, [2, 2, 2, 1], 0.16, times=10)
    assert laps.count == 10
    # The first busy lap began while the ring was idle: its time says nothing.
    assert round(laps.seconds, 6) == 9 * 0.16
    assert round(laps.lap_s, 6) == 0.16
    assert (laps.filled, laps.largest, laps.even) == (4, 2, 2)
    assert laps.decode_tokens == 70


def test_a_lap_with_a_prefill_is_stretched_and_not_in_the_mean():
    """Catches prefill time in the decode lap, which chooses the number of slots."""
    clock = [0.0]
    laps = Laps(2, lambda: clock[0])
    run_laps(laps, clock, [1, 1], 0.1, times=3)
    run_laps(laps, clock, [4, 0], 0.9, decode=False)
    assert laps.stretched == 1
    assert round(laps.lap_s, 6) == 0.1


def test_cpu_time_is_taken_in_one_lap_of_many(monkeypatch):
    """Catches a call into the kernel in every turn, and a turn that is charged with
    the laps between."""
    clock, calls = [0.0], []

    def thread_time():
        calls.append(clock[0])
        return clock[0]

    monkeypatch.setattr("time.thread_time", thread_time)
    laps = Laps(2, lambda: clock[0])
    run_laps(laps, clock, [1, 0], 0.25, times=3 * CPU_EVERY + 1)
    assert len(calls) == 3 * 3
    # The clock moves in a lap's first turn only.
    assert (laps.cpu_filled_s, laps.cpu_empty_s) == (0.25, 0)


class FakeEvent:
    """An event of a device whose clock the test sets."""

    now = 0.0
    finished = float("inf")

    def record(self):
        self.at = FakeEvent.now

    def query(self):
        return self.at <= FakeEvent.finished

    def elapsed_time(self, end):
        return (end.at - self.at) * 1e3


def forward(clock, start, end, size=2, decode=True, ring_was_busy=True):
    """One forward from ``start`` to ``end`` seconds."""
    FakeEvent.now = start
    event = clock.start()
    FakeEvent.now = end
    clock.end(event, size, decode, ring_was_busy)


def test_stage_clock_splits_the_bubble_by_cause():
    """Catches time without work that is booked as a bubble of the pipeline."""
    clock = StageClock(FakeEvent)
    forward(clock, 0.0, 0.1)
    forward(clock, 0.3, 0.4)
    forward(clock, 5.0, 5.1, ring_was_busy=False)
    assert round(clock.busy, 6) == 0.3
    assert round(clock.waiting, 6) == 0.2
    assert round(clock.nothing_to_do, 6) == 4.6


def test_stage_clock_never_waits_for_the_device():
    """Catches a read of an event that has not passed: that would synchronise."""
    clock = StageClock(FakeEvent)
    FakeEvent.finished = 0.5
    forward(clock, 0.0, 0.4)
    forward(clock, 0.4, 0.8)
    assert round(clock.busy, 6) == 0.4
    FakeEvent.finished = float("inf")
    forward(clock, 0.8, 1.0, size=4)
    assert round(clock.busy, 6) == 1.0
    assert {size: round(ms) for size, ms in clock.decode_ms.items()} == {2: 400}


def test_the_first_forward_of_a_size_is_not_its_time():
    """Catches a compilation that passes for stage time, and forbids a number of slots
    for 10,000 laps."""
    clock = StageClock(FakeEvent)
    for start, took in ((0.0, 1.5), (2.0, 0.1), (3.0, 0.1), (4.0, 0.1)):
        forward(clock, start, start + took, size=16)
    assert round(clock.decode_ms[16]) == 100


def test_a_larger_micro_batch_is_not_much_faster():
    """Catches a time of flat stages that outlives them: real SGLang tried 32 requests
    in a slot of steep stages, as they had once taken as long as 16."""
    clock = StageClock(FakeEvent)
    now = 0.0
    for size, took, times in ((32, 0.025, 40), (16, 0.025, 40), (8, 0.035, 600)):
        for _ in range(times):
            forward(clock, now, now + took, size=size)
            now += took
    assert set(clock.decode_ms) == {8, 16, 32}
    for _ in range(15):
        forward(clock, now, now + 0.06, size=12)
        now += 0.06
    for _ in range(600):
        forward(clock, now, now + 0.035, size=8)
        forward(clock, now + 0.035, now + 0.095, size=12)
        now += 0.095
    assert set(clock.decode_ms) == {8, 12}
