"""Where a prompt in chunks will decode: in the slot of its last chunk.

An estimate from lengths, the same on every rank. Later chunks may be smaller (dynamic
chunks, mixed batches that grow, alignment, little KV); from its first chunk on a
request is counted by what is left of it.
"""

from collections.abc import Sequence
from typing import Any

from sglang_ppfix.compat import scheduler as compat
from sglang_ppfix.policy import turns_more

from .turn import Turn


def chunk_tokens(scheduler: Any, occupancy: Sequence[int]) -> int | None:
    """Tokens of a later chunk, None without chunks."""
    size = scheduler.chunked_prefill_size
    if size is None:
        return None
    if scheduler.is_mixed_chunk:
        # As many as the fullest slot decodes: an estimate of each slot's own would
        # send a prompt round and round, every slot naming another one.
        size -= max(occupancy)
    return max(int(size), 1)


def of_chunk(scheduler: Any, turn: Turn) -> int:
    """Slot in which the chunked prefill in progress lands; its chunk of this turn is
    not yet taken."""
    chunked = turn.chunked_req
    size = turn.chunk_tokens
    assert size is not None, "a chunked prefill without a chunk size"
    prompt = len(chunked.origin_input_ids) + len(chunked.output_ids)
    more = turns_more(prompt - compat.computed_tokens(chunked), size, size)
    return (turn.slot + more * _stride(scheduler)) % len(turn.occupancy)


def turns_after(scheduler: Any, turn: Turn, adder: Any, req: Any) -> int:
    """Turns until the last chunk of a waiting request: 0 for one that is not cut."""
    size = turn.chunk_tokens
    if adder.rem_chunk_tokens is None or size is None:
        return 0
    # SGLang asks whether the pages of the prompt fit.
    tokens = adder.ceil_paged_tokens(compat.tokens_to_prefill(req))
    more = turns_more(tokens, min(adder.rem_chunk_tokens, size), size)
    return more * _stride(scheduler)


def _stride(scheduler: Any) -> int:
    """Turns from one chunk to the next: ``--prefill-decode-interval`` (from 0.5.19)
    keeps that many after each prefill for decodes."""
    return int(getattr(scheduler, "prefill_decode_interval", 0) or 0) + 1
