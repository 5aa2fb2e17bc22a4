"""What the hooks read of a request to tell where it will land."""

from types import SimpleNamespace

import pytest

from sglang_ppfix.hooks import landing
from sglang_ppfix.hooks.turn import Turn


def scheduler(size=64, mixed=False):
    return SimpleNamespace(chunked_prefill_size=size, is_mixed_chunk=mixed)


def turn(slot=0, running=0, chunked=None):
    batch = SimpleNamespace(reqs=[object()] * running, batch_is_full=False)
    made = Turn(slot, batch, chunked)
    made.occupancy = [0] * 4
    return made


def request(prompt, said=0, host=0, **prefix):
    return SimpleNamespace(
        origin_input_ids=[1] * prompt,
        output_ids=[1] * said,
        host_hit_length=host,
        **prefix,
    )


@pytest.mark.parametrize(
    ("req", "more"),
    [
        (request(64, prefix_len=0), 0),
        (request(65, prefix_len=0), 1),
        (request(65, prefix_len=1), 0),  # from 0.5.22
        (request(65, prefix_indices=[1]), 0),  # before
        (request(200, prefix_len=100, host=40), 0),  # loaded back, not computed
        (request(60, said=10, prefix_len=0), 1),  # retracted: its output, too
    ],
)
def test_only_what_is_computed_counts(req, more) -> None:
    """Catches a landing slot made from the whole prompt, or without the output that a
    retracted request has to prefill again."""
    adder = SimpleNamespace(rem_chunk_tokens=64)
    assert landing.turns_after(scheduler(), turn(), adder, req) == more


def test_a_turn_that_took_in_something_takes_less() -> None:
    """Catches a first chunk that is thought to be whole."""
    adder = SimpleNamespace(rem_chunk_tokens=1)
    req = request(64, prefix_len=0)
    assert landing.turns_after(scheduler(), turn(), adder, req) == 1


def test_without_chunks_nothing_is_cut() -> None:
    """Catches a crash where ``--chunked-prefill-size`` is -1."""
    adder = SimpleNamespace(rem_chunk_tokens=None)
    req = request(10**6, prefix_len=0)
    assert landing.turns_after(scheduler(None), turn(), adder, req) == 0


def test_decodes_of_a_mixed_batch_take_their_part() -> None:
    """Catches chunks of 64 where every forward also decodes 14 requests."""
    adder = SimpleNamespace(rem_chunk_tokens=50)
    req = request(150, prefix_len=0)
    mixed, this = scheduler(mixed=True), turn(running=14)
    assert landing.turns_after(mixed, this, adder, req) == 2
    # A batch larger than a chunk must not make it negative, or 0.
    assert landing.turns_after(mixed, turn(running=99), adder, req) == 100


@pytest.mark.parametrize(("done", "slot"), [(64, 0), (130, 3), (136, 2), (192, 2)])
def test_a_chunk_in_progress_lands_with_its_last_chunk(done, slot) -> None:
    """Catches a chunk that is counted in the slot whose turn it is, 2, or as if its
    chunk of this turn were done."""
    chunked = request(200, extend_end=done)
    this = turn(slot=2, chunked=chunked)
    assert landing.of_chunk(scheduler(), this) == slot
