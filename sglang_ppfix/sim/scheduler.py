"""SGLang's scheduler under pipeline parallelism, one turn at a time.

Source: SGLang 0.5.23, ``Scheduler.get_next_batch_to_run``,
``_get_new_batch_prefill_raw``, ``update_running_batch``,
``ScheduleBatch.retract_decode``. First come first served, page size 1, no shared
prefixes, no priorities, no mixed chunks.
"""

import math
from collections import Counter, deque

from .memory import Budget, Memory
from .request import Request
from .server import Server
from .slot import NEVER, Forward, Part, Slot


class Scheduler:
    """Stock: a slot takes what fits when its turn comes.

    Attributes:
        slots: the ring.
        waiting: the waiting queue.
        waiting_tokens: tokens to prefill of all requests in it.
        prefilling: requests whose prefill is in flight or in progress.
        chunk: the request whose chunked prefill is in progress.
        occupancy: unfinished requests per slot, the chunk in progress in none.
        retractions: times a request lost its KV.
        forwards: how many had so many (decodes, prompt tokens).
        gone: requests that ended without a result since the engine looked last:
            aborted while they waited, or given up by SGLang.
        admissions: (turn, slot, rids) of every prefill, if it is kept.
        version: moves with everything that an admission depends on.
        refused: per slot, the version at which it took in nothing: it is not asked
            again before that moves.
    """

    def __init__(self, server: Server, cap: int | None = None) -> None:
        self.server = server
        self.cap = server.stock_cap if cap is None else cap
        self.slots = [Slot(number, server.slots) for number in range(server.slots)]
        self.waiting: deque[Request] = deque()
        self.waiting_tokens = 0
        self.prefilling = 0
        self.chunk: Request | None = None
        self.memory = Memory(
            server.max_running_requests, server.kv_tokens, server.conservativeness
        )
        self.occupancy = [0] * server.slots
        self.retractions = 0
        self.forwards: Counter[tuple[int, int]] = Counter()
        self.gone: list[Request] = []
        self.admissions: list[tuple[int, int, list[int]]] | None = None
        self.version = 0
        self.refused = [-1] * server.slots

    # --- What happens to the scheduler ------------------------------------------

    @property
    def live(self) -> int:
        """Unfinished requests that were admitted, each once."""
        return self.server.max_running_requests - self.memory.rows

    def arrive(self, request: Request) -> None:
        """A request enters the waiting queue."""
        self.waiting.append(request)
        self.waiting_tokens += request.to_prefill
        self.version += 1

    def abort(self, request: Request, turn: int) -> None:
        """The client of ``request`` went away before ``turn``."""
        if request.end >= 0 or request.aborted:
            return
        request.aborted = True
        self.version += 1
        if request is self.chunk:
            self.chunk = None
            self.memory.rows += 1
            self.memory.free += request.prefilled
            self.prefilling -= 1
            self.gone.append(request)
        elif request.slot is not None:
            self._count(request.slot, turn)
            request.slot.hasten(request)
        elif request in self.waiting:
            self.waiting.remove(request)
            self.waiting_tokens -= request.to_prefill
            self.gone.append(request)

    def turn(self, number: int, turn: int) -> bool:
        """The turn of slot ``number``: what does it launch?

        Returns:
            Whether that differs from what it launched a lap ago (``slot.forward``).
        """
        slot = self.slots[number]
        if self.memory.limited:
            self.count_all(turn)
        due = slot.alarm <= turn
        if due and (slot.left or slot.joining):
            self._settle(slot)
        if self.chunk is not None or (
            self.waiting and (due or self.refused[number] != self.version)
        ):
            self._count(slot, turn)
            forward = self._prefill(slot, turn)
            if forward is not None:
                self._launch(slot, forward, turn)
                return True
        if not due and not self._starving(slot):
            return False
        self._count(slot, turn)
        self._launch(slot, self._decode(slot) if slot.running else None, turn)
        return True

    def result(self, number: int, turn: int, now: float) -> list[Request]:
        """Process the result of slot ``number`` before its ``turn``, its alarm.

        Returns:
            Requests that it ended.
        """
        slot = self.slots[number]
        self._count(slot, turn)
        forward, slot.forward = slot.forward, None
        ended: list[Request] = []
        if forward is None:
            return ended
        if forward.decodes:
            if forward.prefill:
                slot.results += 1
            ended.extend(slot.ended())
            for request in ended:
                self._end(request, slot, now)
        for part in forward.prefill:
            request = part.request
            if not part.last:
                slot.left = True
                continue
            self.prefilling -= 1
            request.tokens += 1
            if request.first_token < 0:
                request.first_token = now
            if request.tokens >= request.output or request.aborted:
                self._end(request, slot, now)
                ended.append(request)
            else:
                slot.joining.append(request)
        return ended

    def idle(self) -> None:
        """The ring is empty and nothing waits."""
        self.memory.reset_ratio()

    # --- Turns that repeat the lap before --------------------------------------------

    def next_event(self, turn: int) -> int:
        """The next turn after ``turn`` that may differ from the one a lap before it.

        An arrival can make it an earlier one.
        """
        if self.chunk is not None:
            return turn + 1
        event = min([slot.alarm for slot in self.slots])
        if self.waiting:
            event = min(event, self._next_taker(turn))
        if self.memory.limited:
            self.count_all(turn + 1)
            decodes = sum(len(slot.running) for slot in self.slots)
            laps = int(self.memory.free // decodes) - 2 if decodes else 1 << 30
            event = min(event, turn + max(laps * len(self.slots), 1))
        return event

    def _next_taker(self, turn: int) -> int:
        """The next turn after ``turn`` in which the queue must be offered to a slot."""
        refused, version, length = self.refused, self.version, len(self.slots)
        if refused.count(version) == length:
            return NEVER
        for later in range(turn + 1, turn + 1 + length):
            number = later % length
            if refused[number] != version:
                if not self._shut(self.slots[number]):
                    return later
                refused[number] = version
        return NEVER

    def _shut(self, slot: Slot) -> bool:
        """Whether offering ``slot`` the queue now would change nothing at all."""
        return slot.full and bool(slot.running)

    def count_all(self, turn: int) -> None:
        """Count what repeated before ``turn`` began, in every slot."""
        for slot in self.slots:
            self._count(slot, turn)

    def _count(self, slot: Slot, turn: int) -> None:
        launched = slot.catch_up(turn)
        if launched:
            self.memory.decode(len(slot.running), launched)
            self.forwards[len(slot.running), 0] += launched

    def _starving(self, slot: Slot) -> bool:
        """Whether the tokens for the slot's next decode may be missing."""
        return bool(slot.running) and self.memory.free < len(slot.running)

    # --- One turn ----------------------------------------------------------------

    def _settle(self, slot: Slot) -> None:
        """Merge the finished prefill, forget those who left."""
        if slot.left or not slot.running:
            slot.full = slot.left = False
        for request in slot.joining:
            slot.join(request)
            if request.aborted:
                slot.hasten(request)
        slot.joining.clear()

    def _room(self, slot: Slot, held: int = 0) -> int:
        """``get_num_allocatable_reqs``: ``held`` of those it counts have a row."""
        return min(self.cap - len(slot.running), self.memory.rows + held)

    def _open(self, slot: Slot) -> None:
        """Before a slot looks at the queue: may reopen its latch."""

    def _plan_turn(self, slot: Slot) -> None:
        """A slot is about to take in requests."""

    def _refuses(self, slot: Slot, admitted: int, tokens: int) -> bool:
        """Whether the turn ends before one more request, though stock would go on."""
        return False

    def _chunk_tokens(self, slot: Slot) -> int | None:
        """Prompt tokens that the turn may take, longer prompts being cut."""
        return self.server.chunked_prefill_size

    def _reserved(self, slot: Slot) -> float:
        """Tokens that the prefill budget leaves to requests that run."""
        return self.memory.future(slot.running)

    def _prefill(self, slot: Slot, turn: int) -> Forward | None:
        number, chunk = slot.number, self.chunk
        if not slot.running:
            slot.full = False
        self._open(slot)
        if chunk is None:
            if not slot.full and self._room(slot) <= 0:
                slot.full = True
            if slot.full or not self.waiting:
                self.refused[number] = self.version
                return None
        self._plan_turn(slot)
        server, memory = self.server, self.memory
        budget = Budget(
            memory,
            self._reserved(slot),
            self._chunk_tokens(slot),
            server.max_prefill_tokens,
        )
        parts: list[Part] = []
        if chunk is not None:
            rest = chunk.to_prefill - chunk.prefilled
            tokens = budget.next_chunk(rest)
            parts.append(Part(chunk, tokens, tokens == rest))
            budget.take(tokens, chunk, tokens == rest)
        held = len(parts)
        taken = parts[0].tokens if parts else 0
        out_of_tokens = False
        while self.waiting:
            if budget.spent:
                break
            if len(parts) >= self._room(slot, held):
                slot.full = True
            if slot.full or self._refuses(slot, len(parts), taken):
                break
            request = self.waiting[0]
            if not budget.fits(request):
                out_of_tokens = True
                slot.full = bool(parts) or bool(slot.running)
                break
            tokens = request.to_prefill
            if tokens > budget.chunk:
                tokens = int(budget.chunk)
            elif budget.chunk == math.inf and parts and tokens >= budget.inputs:
                break
            if tokens <= 0:
                break
            last = tokens == request.to_prefill
            self.waiting.popleft()
            self.waiting_tokens -= request.to_prefill
            parts.append(Part(request, tokens, last))
            budget.take(tokens, request, last)
            taken += tokens
            if budget.no_tokens:
                slot.full = True
                break
        if not parts:
            # A refusal for want of tokens can end as others decode: ask again.
            self.refused[number] = -1 if out_of_tokens else self.version
            return None
        return self._admit(slot, parts, taken, turn)

    def _launch(self, slot: Slot, forward: Forward | None, turn: int) -> None:
        slot.launch(forward, turn)
        if forward is not None:
            self.forwards[forward.decodes, forward.tokens] += 1

    def _admit(self, slot: Slot, parts: list[Part], tokens: int, turn: int) -> Forward:
        chunk, self.chunk = self.chunk, None
        for request, part, last in parts:
            if request is not chunk:
                self.memory.rows -= 1
                self.prefilling += 1
                request.prefilled = 0
            request.prefilled += part
            if request.admitted is None:
                request.admitted = (turn, slot.number)
            if last:
                self.occupancy[slot.number] += 1
            else:
                self.chunk = request
        self.memory.free -= tokens
        self.version += 1
        if self.admissions is not None:
            rids = [part.request.rid for part in parts]
            self.admissions.append((turn, slot.number, rids))
        return Forward(0, tuple(parts), tokens)

    def _decode(self, slot: Slot) -> Forward | None:
        if self.memory.free < len(slot.running):
            self._retract(slot)
            self.memory.free -= len(slot.running)
        else:
            self.memory.decode(len(slot.running))
        return Forward(len(slot.running)) if slot.running else None

    # --- Out of tokens -------------------------------------------------------------

    def _retract(self, slot: Slot) -> None:
        """``retract_decode``: the slot's youngest give way until the rest fits."""
        keep = sorted(slot.running, key=lambda r: (r.said(), -r.prompt), reverse=True)
        first = True
        while (first or self.memory.free < len(keep)) and len(keep) > 1:
            first = False
            self._send_back(keep.pop(), slot)
        if len(keep) == 1 and self.memory.free < 1:
            self.memory.learn(self._last_one(keep.pop(), slot))
        else:
            self.memory.learn(keep)
        slot.full = slot.left = False
        self.version += 1

    def _last_one(self, request: Request, slot: Slot) -> list[Request]:
        """A slot's last request does not fit: stock gives it up.

        Returns:
            Requests to learn the next ``new_token_ratio`` from.
        """
        self.memory.release(request)
        self.occupancy[slot.number] -= 1
        slot.leave(request)
        request.aborted = True
        self.gone.append(request)
        return []

    def _send_back(self, request: Request, slot: Slot) -> None:
        self.memory.release(request)
        self.occupancy[slot.number] -= 1
        slot.leave(request)
        request.retractions += 1
        self.retractions += 1
        self.waiting.append(request)
        self.waiting_tokens += request.to_prefill

    def _end(self, request: Request, slot: Slot, now: float) -> None:
        self.memory.release(request)
        request.end = now
        self.occupancy[slot.number] -= 1
        self.version += 1
        slot.left = True
        if request.slot is not None:
            slot.leave(request)
