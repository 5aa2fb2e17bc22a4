"""Forwards on devices, in a form that pictures and traces can share."""

from typing import NamedTuple


class Span(NamedTuple):
    """One forward of one stage. Times in seconds.

    Attributes:
        stage: PP rank.
        slot: of the ring.
        start: of the forward on the stage's device.
        end: of the same.
        size: requests in the forward.
        kind: ``decode``, ``prefill`` or ``mixed``.
    """

    stage: int
    slot: int
    start: float
    end: float
    size: int
    kind: str
