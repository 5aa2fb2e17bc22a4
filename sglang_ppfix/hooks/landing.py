"""Where a prompt in chunks will decode: in the slot of its last chunk.

An estimate from lengths, the same on every rank. Later chunks may be smaller (dynamic
chunks, mixed batches that grow, little KV); from its first chunk on a request is
counted by what is left of it.
"""

from typing import Any

from sglang_ppfix.compat import scheduler as compat
from sglang_ppfix.policy import turns_more

from .turn import Turn


def of_chunk(scheduler: Any, turn: Turn) -> int:
    """Slot in which the chunked prefill in progress lands; its chunk of this turn is
    not yet taken."""
    chunked = turn.chunked_req
    prompt = len(chunked.origin_input_ids) + len(chunked.output_ids)
    size = _chunk_tokens(scheduler, turn)
    more = turns_more(prompt - compat.computed_tokens(chunked), size, size)
    return (turn.slot + more) % len(turn.occupancy)


def turns_after(scheduler: Any, turn: Turn, adder: Any, req: Any) -> int:
    """Turns that a waiting request needs after this one: 0 for one that is not cut."""
    if adder.rem_chunk_tokens is None:
        return 0
    tokens = compat.tokens_to_prefill(req)
    return turns_more(tokens, adder.rem_chunk_tokens, _chunk_tokens(scheduler, turn))


def _chunk_tokens(scheduler: Any, turn: Turn) -> int:
    size = int(scheduler.chunked_prefill_size)
    if scheduler.is_mixed_chunk:
        # Even slots decode as many as this one.
        size -= len(turn.batch.reqs)
    return max(size, 1)
