"""One request of a simulated server."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .slot import Slot


class Request:
    """What the scheduler knows of a request, and what became of it.

    Attributes:
        rid: number of the request, in order of arrival.
        arrival: seconds.
        prompt: prompt tokens.
        output: tokens it will say before it ends.
        limit: its ``max_new_tokens``, which is all that the scheduler knows.
        tokens: output tokens when it joined its slot (see :meth:`said`).
        prefilled: tokens of a chunked prefill done or in flight.
        slot: where it decodes; None while it waits or is prefilled.
        joined: decode results of the slot when it joined.
        due: decode results of the slot with which it ends.
        first_token: when rank 0 had its first token, seconds; -1 before.
        end: when rank 0 had its last one; -1 before.
        admitted: (turn, slot) of its first forward; None before.
        retractions: times it lost its KV.
        aborted: the client went away, or SGLang gave it up.
    """

    __slots__ = (
        "aborted",
        "admitted",
        "arrival",
        "due",
        "end",
        "first_token",
        "joined",
        "limit",
        "output",
        "prefilled",
        "prompt",
        "retractions",
        "rid",
        "slot",
        "tokens",
    )

    def __init__(
        self, rid: int, arrival: float, prompt: int, output: int, limit: int
    ) -> None:
        self.rid = rid
        self.arrival = arrival
        self.prompt = prompt
        self.output = output
        self.limit = limit
        self.tokens = 0
        self.prefilled = 0
        self.slot: Slot | None = None
        self.joined = 0
        self.due = 0
        self.first_token = -1.0
        self.end = -1.0
        self.admitted: tuple[int, int] | None = None
        self.retractions = 0
        self.aborted = False

    def said(self) -> int:
        """Output tokens so far, those in flight not counted."""
        if self.slot is None:
            return self.tokens
        return self.tokens + self.slot.results - self.joined

    @property
    def to_prefill(self) -> int:
        """Tokens that a prefill from the start must compute."""
        return self.prompt + self.tokens
