"""The search for the number of slots when something changes in the midst of it."""

from search_ring import LOOK, STAGES, Ring, flat, host

from sglang_ppfix.policy import SlotSearch, View
from sglang_ppfix.policy.failures import MOST_DOUBLINGS, REMEMBERED, Failures
from sglang_ppfix.policy.load_watch import LoadWatch


def until_trial(ring, clients, limit=3000):
    """Bursts until a trial is in progress."""
    while ring.search._trial is None:
        ring.burst(clients, 60)
        assert ring.laps < limit, ring.changes


def test_prompts_that_become_long_are_followed():
    """Catches a trial that laps without prompts decide although tokens per second say
    otherwise: one slot stayed in force, 40 % below four."""
    laps_ms = {4: 50.0, 3: 48.5, 2: 47.0, 1: 45.0}
    ring = Ring(flat, 0, noise=0.01, drift=0.0)
    ring.lap = lambda demand, filled: laps_ms[filled]
    ring.seen = {}
    ring.stage = lambda size, filled: 9.0  # the devices allow any number

    def run(laps, prompt_ms):
        for number in range(laps):
            filled = ring.slots
            ring.sizes = [16 // filled + (n < 16 % filled) for n in range(filled)]
            prompt = number % 4 == 3
            ring._lap(not prompt, prompt_ms[filled] * prompt)

    run(1500, dict.fromkeys(laps_ms, 0.0))
    assert ring.slots == 1, ring.changes
    # The next trial may come when what lost is forgotten; the worst case.
    ring.search._failures = Failures()
    run(3000, {4: 0.0, 3: 50.0, 2: 100.0, 1: 150.0})
    assert ring.slots > 1, ring.changes


def test_a_load_that_shrinks_in_a_trial():
    """Catches a number of slots that nobody judged, left in force by a trial that the
    end of its load cut off, without a line in the log."""
    ring = Ring(host, 30)
    ring.lap = lambda demand, filled: 100.0 + filled / 100
    # The devices do not speak against one slot: the old sizes are known.
    ring.seen = {4: 2.0}
    until_trial(ring, 32)
    trial = ring.search._trial
    while ring.search._trial is trial:
        ring.burst(16, 16)
    assert ring.slots == trial.base_slots, ring.changes


def test_no_trial_begins_while_the_load_changes():
    """Catches a trial at a new load that is judged by the old one's laps."""
    ring = Ring(flat, 5)
    while ring.laps < 3000 or ring.search._trial is not None:
        ring.burst(4, 60)
    # A trial is due.
    ring.search._pauses._next = 0
    ring.search._failures = Failures()
    ring.sizes = [64 // ring.slots] * ring.slots
    while ring.search._load.chosen_for == 4:
        ring._lap(True)
        assert ring.search._trial is None, ring.changes


def test_laps_of_before_are_not_held_against_new_ones():
    """Catches a trial that begins, after hours of another policy, with laps of before:
    contexts had become longer, and the better number lost by that."""
    ring = Ring(flat, 5)
    for _ in range(3):
        ring.burst(16, 40)
    assert ring.search._trial is None
    resumed = ring.search._laps
    ring.laps += 20_000
    ring._alone = lambda _size: 54.0
    until_trial(ring, 16, ring.laps + 3000)
    assert ring.search._trial.began - resumed >= 128
    assert ring.search._trial.base_s > 1.2 * 4 * 40e-3


def test_a_first_lap_that_hangs_decides_nothing():
    """Catches a kernel compiled in the first lap of a trial, counted with the rest: a
    number that is 8 % faster lost, for 10,000 laps."""
    laps_ms = {4: 50.0, 3: 48.5, 2: 47.0, 1: 46.0}
    ring = Ring(flat, 0, noise=0.01, drift=0.0)
    ring.stage = lambda size, filled: 9.0
    ring.lap = lambda demand, filled: laps_ms[filled]
    ring.seen = {8: 9.0, 16: 9.0}
    while ring.search._trial is None:
        ring.sizes = [4, 4, 4, 4]
        ring._lap(True)
    assert ring.slots == 1, ring.changes
    ring.sizes = [16]
    ring._lap(True, 3000.0)
    while ring.search._trial is not None:
        filled = ring.slots
        ring.sizes = [16 // filled] * filled
        ring._lap(True)
    assert ring.slots == 1, ring.changes


def test_what_was_best_is_taken_when_the_load_returns():
    """Catches two bounds of devices held against each other where laps were measured:
    the winner was left, and tried again, whenever its load came back."""
    ring = Ring(lambda size: 9 + 0.0156 * size, 0, noise=0.01, drift=0.0)
    ring.lap = lambda demand, filled: 40.0 + 2.5 * filled
    while ring.laps < 1500 or ring.search._trial is not None:
        ring.burst(64, 60)
    assert ring.slots == 1, ring.changes
    for clients in (4, 64):
        begin = ring.laps
        while ring.laps - begin < 1300 or ring.search._trial is not None:
            ring.burst(clients, 60)
        # Sizes that were not seen for long are forgotten.
        ring.seen.clear()
    began = ring.laps
    for clients in (4, 64):
        for _ in range(6):
            ring.burst(clients, 60)
    assert ring.slots == 1, ring.changes
    trials = [lap for lap, slots in ring.changes if lap > began and slots > 4]
    assert not trials


def test_a_cap_that_is_set_in_a_trial_ends_it():
    """Catches a trial of one slot that a new cap spreads over four: no lap counts, and
    filling was packed for 2,000 laps."""
    search, slots, moves = SlotSearch(), STAGES, []
    for lap in range(1, 400):
        sizes = [4, 4, 4, 4] if slots == STAGES else [16]
        search.end_lap(lap, slots, sizes, 16, 0.050, 0.050)
        if lap % LOOK == 0:
            cap = 4 if search._trial is not None and search._trial.began < lap else None
            stages = [{4: 2.0, 16: 2.0}] * STAGES
            move = search.look(View(slots, STAGES, STAGES, cap, stages))
            if move is not None:
                slots = move.slots
                moves.append(move.why)
            if cap is not None:
                break
    assert moves[-1] == "a cap of 4 was given"
    assert slots == STAGES
    assert search._trial is None
    assert not search._failures._failures


def test_a_tail_after_a_pause_is_no_other_load():
    """Catches a load that is judged by a handful of laps: the tail of a burst."""
    watch = LoadWatch()
    watch.chosen_for = 64
    watch.pause()
    for lap in range(127):
        watch.add(8)
        assert not (lap % LOOK == 0 and watch.is_other())
    for _ in range(2):
        watch.add(8)
        other = watch.is_other()
    assert other


def test_no_failure_is_remembered_for_ever():
    """Catches a memory that doubles without end: days, after ten losses."""
    failures = Failures()
    lap = 0
    for _ in range(12):
        failures.add(8, 1, lap, 0.05)
        assert failures.bars(8, 1, lap + REMEMBERED - 1, 0.05)
        lap += REMEMBERED << MOST_DOUBLINGS
        assert not failures.bars(8, 1, lap, 0.05)
    # It won since, or lost anew under other laps: all begins again.
    failures.add(8, 1, lap, 0.5)
    assert not failures.bars(8, 1, lap + REMEMBERED, 0.5)
    failures.forget(8, 1)
    assert not failures.bars(8, 1, lap + 1, 0.5)
