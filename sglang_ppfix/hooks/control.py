"""The control channel, led by PP rank 0, and the runtime switch.

A message rides with the requests that rank 0 relays to the next stage, so every rank
applies it in the same loop iteration. ``/set_internal_state`` needs no message of its
own: SGLang relays that request in the same way.
"""

import copy
import logging
from collections.abc import Callable
from typing import Any

from sglang_ppfix.compat import scheduler as compat

from .change import PREFIX, Change, ChangeError, from_codes
from .ring import Ring, current_ring
from .state import state

Wrapped = Callable[..., Any]
logger = logging.getLogger(__name__)

#: First field of a control message; the second is the version of its form.
MARK = "sglang_ppfix.control"
VERSION = 1


def is_message(item: Any) -> bool:
    """Whether something among the requests is a control message of the plugin."""
    return isinstance(item, tuple) and len(item) == 3 and item[0] == MARK


def pull_raw_reqs(wrapped: Wrapped, receiver: Any, args: Any, kwargs: Any) -> Any:
    """Around ``SchedulerRequestReceiver._pull_raw_reqs``: rank 0 puts in a message.

    Before the broadcast to tensor-parallel followers, and only called when SGLang
    really receives, so that ``--scheduler-recv-interval`` delays but loses nothing.
    """
    reqs = wrapped(*args, **kwargs)
    ring = current_ring()
    if ring is None or reqs is None or not ring.leads:
        return reqs
    codes = ring.pending_codes()
    if codes:
        reqs.append((MARK, VERSION, codes))
    return reqs


def process_input_requests(
    wrapped: Wrapped, scheduler: Any, args: Any, kwargs: Any
) -> Any:
    """Around ``Scheduler.process_input_requests``: apply and strip messages.

    Stock gets a new list: the one received is what the next stage is sent.
    """
    recv_reqs = kwargs["recv_reqs"] if "recv_reqs" in kwargs else args[0]
    if not recv_reqs:  # nearly always, in every turn of every slot
        return wrapped(*args, **kwargs)
    messages = [item for item in recv_reqs if is_message(item)]
    if not messages:
        return wrapped(*args, **kwargs)
    ring = current_ring()
    for _mark, version, codes in messages:
        if version != VERSION:
            raise RuntimeError(f"control message of version {version}, not {VERSION}")
        if ring is not None:
            ring.choose(codes["chosen_slots"])
    return wrapped([item for item in recv_reqs if not is_message(item)])


def set_internal_state(wrapped: Wrapped, scheduler: Any, args: Any, kwargs: Any) -> Any:
    """Around ``Scheduler.set_internal_state``: the keys of the plugin.

    All or nothing: stock's own keys are asked first, ours apply when it agreed.
    """
    request = kwargs["recv_req"] if "recv_req" in kwargs else args[0]
    ours = {k: v for k, v in request.server_args.items() if k.startswith(PREFIX)}
    if not ours:
        return wrapped(*args, **kwargs)
    rest = copy.copy(request)
    rest.server_args = {k: v for k, v in request.server_args.items() if k not in ours}
    ring = current_ring()
    change = _checked(ring, ours)
    if ring is None or change is None:
        # An empty update is what stock always accepts; the answer is then ours.
        rest.server_args = {}
        result = wrapped(rest)
        result.updated = False
        return result
    result = wrapped(rest)
    if result.updated:
        ring.apply(change)
    return result


def _checked(ring: Ring | None, ours: dict[str, Any]) -> Change | None:
    if ring is None:
        logger.warning("ppfix: refused %s: the plugin does not act here", ours)
        return None
    try:
        return from_codes(ours, ring.length)
    except ChangeError as error:
        ring.refused = str(error)
        if ring.leads:
            logger.warning("ppfix: refused: %s", error)
        return None


def get_internal_state(wrapped: Wrapped, scheduler: Any, args: Any, kwargs: Any) -> Any:
    """Around ``Scheduler.get_internal_state``: ``/server_info`` shows the plugin."""
    result = wrapped(*args, **kwargs)
    ring = current_ring()
    if ring is None:
        reason = compat.out_of_scope(scheduler) or "--pp-size 1"
        result.internal_state["ppfix"] = {"active": False, "reason": reason}
    else:
        result.internal_state["ppfix"] = {"active": True, **state(ring)}
    return result
