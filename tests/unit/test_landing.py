"""What the hooks read of a request to tell where it will land."""

from types import SimpleNamespace

import pytest

from sglang_ppfix.hooks import landing
from sglang_ppfix.hooks.turn import Turn


def scheduler(size=64, mixed=False, **more):
    return SimpleNamespace(chunked_prefill_size=size, is_mixed_chunk=mixed, **more)


def turn(scheduler, slot=0, held=(0, 0, 0, 0), chunked=None):
    batch = SimpleNamespace(reqs=[object()] * held[slot], batch_is_full=False)
    made = Turn(slot, batch, chunked)
    made.occupancy = list(held)
    made.chunk_tokens = landing.chunk_tokens(scheduler, held)
    return made


def adder(tokens, page=1):
    """A ``PrefillAdder`` that can take so many tokens more."""
    return SimpleNamespace(
        rem_chunk_tokens=tokens,
        ceil_paged_tokens=lambda tokens: -(-tokens // page) * page,
    )


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
    ring = scheduler()
    assert landing.turns_after(ring, turn(ring), adder(64), req) == more


def test_a_turn_that_took_in_something_takes_less() -> None:
    """Catches a first chunk that is thought to be whole."""
    ring = scheduler()
    req = request(64, prefix_len=0)
    assert landing.turns_after(ring, turn(ring), adder(1), req) == 1


def test_without_chunks_nothing_is_cut() -> None:
    """Catches a crash where ``--chunked-prefill-size`` is -1."""
    ring = scheduler(None)
    req = request(10**6, prefix_len=0)
    assert landing.turns_after(ring, turn(ring), adder(None), req) == 0


def test_pages_are_cut_not_tokens() -> None:
    """Catches a prompt of 61 tokens that is thought to fit into 62: SGLang takes its
    four pages for 64, and cuts it."""
    ring = scheduler()
    req = request(61, prefix_len=0)
    assert landing.turns_after(ring, turn(ring), adder(62, page=16), req) == 1


def test_decodes_of_a_mixed_batch_take_their_part() -> None:
    """Catches chunks of 64 where every forward also decodes 14 requests."""
    req = request(150, prefix_len=0)
    mixed = scheduler(mixed=True)
    this = turn(mixed, held=(14, 14, 13, 13))
    assert landing.turns_after(mixed, this, adder(50), req) == 2
    # A batch larger than a chunk must not make it negative, or 0.
    crowded = turn(mixed, held=(99, 0, 0, 0))
    assert landing.turns_after(mixed, crowded, adder(1), req) == 149


@pytest.mark.parametrize("prompt", [127, 128])
@pytest.mark.parametrize("held", [(1, 0), (0, 1)])
def test_all_slots_count_the_same_chunks_of_a_mixed_prompt(prompt, held) -> None:
    """Catches an estimate of each slot's own: PP2, one slot decodes a request, and a
    prompt of two whole chunks is passed on by either slot to the other."""
    mixed, req = scheduler(mixed=True), request(prompt, prefix_len=0)
    counted = []
    for slot in (0, 1):
        this = turn(mixed, slot, held=held)
        budget = adder(64 - held[slot])
        counted.append(landing.turns_after(mixed, this, budget, req))
    assert counted == [2, 2]


@pytest.mark.parametrize(("interval", "more"), [(0, 2), (None, 2), (1, 4), (22, 46)])
def test_turns_that_are_kept_for_decodes_count(interval, more) -> None:
    """Catches ``--prefill-decode-interval``: the next chunk comes in a later slot."""
    ring = scheduler(prefill_decode_interval=interval)
    req = request(150, prefix_len=0)
    assert landing.turns_after(ring, turn(ring), adder(64), req) == more
    chunked = request(200, extend_end=10)
    this = turn(ring, 1, chunked=chunked)
    assert landing.of_chunk(ring, this) == (1 + more) % 4


@pytest.mark.parametrize(("done", "slot"), [(64, 0), (130, 3), (136, 2), (192, 2)])
def test_a_chunk_in_progress_lands_with_its_last_chunk(done, slot) -> None:
    """Catches a chunk that is counted in the slot whose turn it is, 2, or as if its
    chunk of this turn were done."""
    chunked, ring = request(200, extend_end=done), scheduler()
    assert landing.of_chunk(ring, turn(ring, 2, chunked=chunked)) == slot
