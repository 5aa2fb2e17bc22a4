"""One slot of the ring, and the forward it has in flight."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from .request import Request

NEVER = 1 << 62
"""Number of a turn that does not come."""


class Part(NamedTuple):
    """A request's part in a prefill: ``tokens`` of its prompt, the last ones or not."""

    request: Request
    tokens: int
    last: bool


class Forward(NamedTuple):
    """A micro-batch on its way through the stages.

    Attributes:
        decodes: requests that decode.
        prefill: prompts, or chunks of them.
        tokens: prompt tokens of all parts.
    """

    decodes: int
    prefill: tuple[Part, ...] = ()
    tokens: int = 0


class Slot:
    """The micro-batch that one entry of the ring keeps.

    A slot that only decodes does the same every lap, so nobody looks at it until its
    ``alarm``: what happened meanwhile is counted by :meth:`catch_up`.

    Attributes:
        number: ``mb_id`` in SGLang.
        running: its decoding requests.
        joining: prefilled in its last forward, merged in its next turn.
        results: decode results so far; requests count on this clock.
        full: SGLang's latch ``batch_is_full``.
        left: a request left since the slot's last turn.
        forward: what it launched in its last turn, None for nothing.
        alarm: the turn of this slot before which the result of its last forward must
            be processed, and in which it must be asked what to launch.
        longest: laps after which the alarm rings in any case.
    """

    __slots__ = (
        "_due",
        "_first",
        "_lap",
        "_launched",
        "_processed",
        "alarm",
        "forward",
        "full",
        "joining",
        "left",
        "longest",
        "number",
        "results",
        "running",
    )

    def __init__(self, number: int, lap: int) -> None:
        self.number = number
        self.running: list[Request] = []
        self.joining: list[Request] = []
        self.results = 0
        self.full = False
        self.left = False
        self.forward: Forward | None = None
        self.alarm = NEVER
        self.longest = NEVER
        self._lap = lap
        self._due: list[tuple[int, int, Request]] = []
        # Of the decodes that repeat: turn of the first, and how many are counted.
        self._first = NEVER
        self._launched = self._processed = 0

    # --- The forward that repeats ---------------------------------------------------

    def launch(self, forward: Forward | None, turn: int) -> None:
        """Launch in ``turn``, and again every lap if it is a decode."""
        self.forward = forward
        if forward is None:
            self._first = self.alarm = NEVER
        elif forward.prefill:
            self._first, self.alarm = NEVER, turn + self._lap
        else:
            self._first, self._launched, self._processed = turn, 1, 0
            self._set_alarm()

    def _set_alarm(self) -> None:
        """Ring when a request ends."""
        results = self.longest
        while self._due:
            due, _, request = self._due[0]
            if request.slot is self and request.due == due:
                results = min(results, due - self.results + self._processed)
                break
            heappop(self._due)
        self.alarm = self._first + results * self._lap if results < NEVER else NEVER

    def catch_up(self, turn: int) -> int:
        """Count what repeated before ``turn`` began.

        Returns:
            Decodes launched since it was last counted.
        """
        if self._first >= turn:
            return 0
        passed = turn - self._first
        launched = -(-passed // self._lap) - self._launched
        processed = passed // self._lap - self._processed
        self._launched += launched
        self._processed += processed
        self.results += processed
        return launched

    # --- Requests ---------------------------------------------------------------------

    def join(self, request: Request) -> None:
        """``request`` decodes here from now on."""
        request.slot = self
        request.joined = self.results
        request.due = self.results + max(request.output - request.tokens, 1)
        self.running.append(request)
        heappush(self._due, (request.due, request.rid, request))

    def leave(self, request: Request) -> None:
        """``request`` decodes here no more; its tokens so far stay with it."""
        request.tokens = request.said()
        request.slot = None
        self.running.remove(request)
        self.left = True

    def hasten(self, request: Request) -> None:
        """``request`` ends with the next result (abort)."""
        request.due = self.results + 1
        heappush(self._due, (request.due, request.rid, request))
        if self.forward is not None and not self.forward.prefill:
            self._set_alarm()

    def ended(self) -> list[Request]:
        """Requests that end with the result just counted."""
        ended = []
        while self._due and self._due[0][0] <= self.results:
            due, _, request = heappop(self._due)
            # A request that moved, was retracted or was hastened left an entry.
            if request.slot is self and request.due == due:
                request.due = -1
                ended.append(request)
        return ended

    def kept(self) -> Iterator[Request]:
        """Unfinished requests that the slot holds or will hold."""
        yield from self.running
        yield from self.joining
        if self.forward is not None:
            for part in self.forward.prefill:
                if part.last:
                    yield part.request
