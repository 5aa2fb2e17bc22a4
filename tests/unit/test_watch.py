"""The live view, out of states as a server gives them."""

from rich.console import Console

from sglang_ppfix.observe.watch_view import throughput, view


def state(clock_s=10.0, tokens=1000, busy=1.0, waiting=1.0):
    """A state of a ring of four slots, the last one empty."""
    rank = {
        "busy_s": busy,
        "waiting_s": waiting,
        "nothing_to_do_s": 0.0,
        "decode_ms": {"2": 40.0, "10": 120.0},
    }
    return {
        "policy": "balanced",
        "target_slots": 4,
        "slots": 4,
        "cap": 8,
        "cap_given": False,
        "occupancy": [8, 4, 2, 0],
        "queue_req": 3,
        "lap_s": 0.16,
        "filled": 3.0,
        "largest": 8.0,
        "even": 4.0,
        "clock_s": clock_s,
        "decode_tokens": tokens,
        "ranks": [{**rank, "pp_rank": 0}, {**rank, "pp_rank": 1}],
    }


def shown(*args):
    """The screen as plain text."""
    console = Console(width=110, record=True, file=None)
    with console.capture() as capture:
        console.print(view(*args))
    return capture.get()


def test_shares_are_of_the_time_between_two_looks():
    """Catches shares since the start, which a long-running server never moves."""
    before, now = state(), state(12.0, 1100, busy=1.5, waiting=2.5)
    text = shown(now, before, ["GPU 0: busy 50%"])
    assert "25%" in text
    assert "75%" in text
    assert "50.0 tok/s" in text
    assert "2: 40.0, 10: 120.0" in text
    assert "GPU 0: busy 50%" in text


def test_the_first_look_claims_no_speed():
    """Catches a division by zero, or a rate since the server started."""
    assert throughput(state(), None) is None
    assert "- tok/s" in shown(state(), None, [])


def test_every_slot_is_there_with_its_requests():
    """Catches a view of one slot, which is what SGLang's log shows."""
    text = shown(state(), None, [])
    assert "running 14, queue 3" in text
    assert "#" * 30 in text
