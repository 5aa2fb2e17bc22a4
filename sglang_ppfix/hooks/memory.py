"""Memory: spreading must not lose a request.

Stock reserves future tokens for the requests of one slot, and when KV runs out a
slot may retract only its own, so that a slot with one request aborts it while other
slots hold plenty.
"""

import logging
from collections.abc import Callable
from itertools import chain
from typing import Any

from sglang_ppfix.compat import scheduler as compat

from .ring import Ring, current_ring
from .turn import Turn

Wrapped = Callable[..., Any]
logger = logging.getLogger(__name__)


def prefill_adder_init(wrapped: Wrapped, adder: Any, args: Any, kwargs: Any) -> None:
    """Around ``PrefillAdder.__init__``: count the future tokens of all slots."""
    wrapped(*args, **kwargs)
    ring = current_ring()
    if ring is None or ring.turn is None:
        return
    turn = ring.turn
    ring.plan(turn)
    # Also in a slot that holds its share: it may start a prompt that lands elsewhere.
    if ring.balances:
        compat.add_future_tokens(adder, _future_tokens(ring, turn, adder))


def _future_tokens(ring: Ring, turn: Turn, adder: Any) -> float:
    """Tokens that requests of other slots, and the chunk in progress, will need."""
    offset = adder._get_running_request_total_token_offset
    tokens = 0.0
    for slot, held in enumerate(turn.held):
        if slot != turn.slot:
            # Below 0 for a request whose last token is on its way.
            tokens += sum([left for req in held if (left := offset(req)) > 0])
    chunked = ring.scheduler.chunked_req
    if chunked is not None and adder.rem_chunk_tokens is not None:
        prompt = len(chunked.origin_input_ids) + len(chunked.output_ids)
        rest = prompt - compat.computed_tokens(chunked) - adder.rem_chunk_tokens
        # Stock reserves the coming chunk, and with the last one the output.
        if rest > 0:
            tokens += rest + adder._get_running_request_total_token_offset(chunked)
    return float(tokens)


def add_one_req_ignore_eos(wrapped: Wrapped, adder: Any, args: Any, kwargs: Any) -> Any:
    """Around ``PrefillAdder.add_one_req_ignore_eos`` (radix cache off).

    It simulates how KV is used up and freed, over the requests of one slot: give it
    those of all slots to start from.
    """
    ring = current_ring()
    planned = ring is not None and ring.turn is not None and ring.balances
    if ring is not None and planned and adder.req_states is None:
        known = chain(
            ring.occupants.of_others(ring.slot),
            adder.running_batch.reqs,
            adder.can_run_list,
        )
        states = [_simulated_state(adder, req) for req in known]
        adder.req_states = sorted(s for s in states if s[0] > 0)
    return wrapped(*args, **kwargs)


def _simulated_state(adder: Any, req: Any) -> tuple[float, int]:
    """(tokens left, tokens held), as ``add_one_req_ignore_eos`` keeps them."""
    ratio = 1.0 if req.sampling_params.ignore_eos else adder.new_token_ratio
    left = req.sampling_params.max_new_tokens * ratio - len(req.output_ids)
    return left, len(req.origin_input_ids) + len(req.output_ids)


def retract_decode(wrapped: Wrapped, batch: Any, args: Any, kwargs: Any) -> Any:
    """Around ``ScheduleBatch.retract_decode``: requeue instead of aborting.

    Stock aborts the last request of a slot that does not fit; its KV is released
    either way. Where other slots hold KV it can wait for them to finish.
    """
    ring = current_ring()
    if ring is None or not ring.balances:
        return wrapped(*args, **kwargs)
    # Stock writes its reason over one that a client's abort has left there.
    asked = {id(req): req.to_finish for req in batch.reqs}
    retracted, ratio, aborted = wrapped(*args, **kwargs)
    if not aborted or batch.reqs:
        return retracted, ratio, aborted
    last = aborted[-1]
    holders = ring.occupants.of_others(ring.slot)
    chunked = ring.scheduler.chunked_req
    if chunked is not None and chunked is not last:
        holders.append(chunked)
    # A beam group cannot be retracted, and is aborted for that.
    if not holders or getattr(last, "beam_group", None) is not None:
        return retracted, ratio, aborted
    last.to_finish = asked[id(last)]
    if last.to_finish is not None:
        return retracted, ratio, aborted
    logger.warning(
        "ppfix: request %s goes back to the queue instead of being aborted: "
        "%d requests of other slots hold KV",
        last.rid,
        len(holders),
    )
    ring.log.requeued += 1
    # Stock's estimate is over the requests that stay, and here none stay.
    return [*retracted, last], _new_token_ratio(holders), aborted[:-1]


def _new_token_ratio(reqs: list[Any]) -> float:
    """Stock's estimate after a retraction, over the requests of all slots."""
    decoded = sum(len(req.output_ids) for req in reqs)
    limit = sum(req.sampling_params.max_new_tokens for req in reqs)
    steps = compat.retract_steps() * len(reqs)
    return float(min((decoded + steps) / (limit + 1), 1.0))
