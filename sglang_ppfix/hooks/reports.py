"""Every rank's state, carried around the ring to rank 0.

A report rides now and then in the dict of tensors that a stage sends on: down the
stages with the hidden states, and back to rank 0 with the output tokens. It decides
nothing by itself.
"""

from collections.abc import Callable
from typing import Any

from sglang_ppfix.compat import scheduler as compat

from .ring import current_ring
from .state import report

Wrapped = Callable[..., Any]

KEY = "__ppfix_reports__"


def send_dict(wrapped: Wrapped, scheduler: Any, args: Any, kwargs: Any) -> Any:
    """Around ``Scheduler._pp_send_dict_to_next_stage``."""
    ring = current_ring()
    if ring is None:
        return wrapped(*args, **kwargs)
    kind = kwargs.get("msg_type", args[2] if len(args) > 2 else "default")
    reports = ring.courier.load(kind, lambda: report(ring))
    if reports is None:
        return wrapped(*args, **kwargs)
    # A new dict: the one given may hold a graph's static buffers.
    if "tensor_dict" in kwargs:
        kwargs = {**kwargs, "tensor_dict": {**kwargs["tensor_dict"], KEY: reports}}
    else:
        args = ({**args[0], KEY: reports}, *args[1:])
    return wrapped(*args, **kwargs)


def recv_typed_dict(wrapped: Wrapped, scheduler: Any, args: Any, kwargs: Any) -> Any:
    """Around ``Scheduler._pp_recv_typed_dict``: take the reports out again."""
    result = wrapped(*args, **kwargs)
    reports = compat.received_tensors(result).pop(KEY, None)
    ring = current_ring()
    if reports is not None and ring is not None:
        ring.courier.take(reports)
    return result
