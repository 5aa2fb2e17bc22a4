"""A tiny model of SGLang's pipeline loop that writes the log SGLang would write.

It knows the truth that the log hides: how many requests each slot holds. Slots are
visited in turn; a slot's turn processes its last result, takes in waiting requests as
the policy allows, and launches a prefill or a decode. Times follow the recurrence of a
pipeline (a stage starts when the stage before is done and it is free itself).
"""

import heapq
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import diagnose_lines as lines

START = 1_780_000_000.0


@dataclass
class Request:
    """A request: prompt and output lengths in tokens, and how far it is."""

    prompt: int
    output: int
    client: int = -1
    done: int = 0
    prefilled: int = 0


@dataclass
class Load:
    """Closed loop: ``clients`` clients, each with one request in flight.

    Attributes:
        clients: how many.
        requests: requests in all; the load ends when they are answered.
        prompt, output: length in tokens, drawn per request.
        at: second at which the load starts.
        stagger_s: clients start over this time.
    """

    clients: int
    requests: int
    prompt: Callable[[random.Random], int] = lambda rng: 64
    output: Callable[[random.Random], int] = lambda rng: 200
    at: float = 5.0
    stagger_s: float = 0.0


@dataclass
class Ring:
    """One server.

    Attributes:
        stage_s: stage, batch size -> seconds of a decode micro-batch.
        prefill_s: stage, tokens -> seconds of a prefill.
        policy: ``stock`` or ``even``.
        wrong_rank: PP rank that admits one request less from ``wrong_from`` on.
    """

    pp: int
    max_running: int
    stage_s: Callable[[int, int], float]
    depth: int = 0
    cap: int | None = None
    policy: str = "stock"
    prefill_s: Callable[[int, int], float] = lambda stage, tokens: 1e-5 * tokens
    hop_s: float = 0.0002
    host_s: float = 0.0003
    chunk: int = 8192
    kv_tokens: int = 100_000
    shape: lines.Shape = field(default_factory=lines.Shape)
    interval: int = 40
    wrong_rank: int | None = None
    wrong_from: float = 1e18
    http: bool = True
    plugin_lines: bool = False
    announce: bool = True
    seed: int = 1


@dataclass
class Truth:
    """What was so at a decode line of rank 0."""

    second: float
    slots: tuple[int, ...]
    tok_s: float


@dataclass
class _Slot:
    running: list[Request] = field(default_factory=list)
    batch: str = ""  # what is in flight: "prefill", "decode" or nothing
    new: list[Request] = field(default_factory=list)
    ready: float = 0.0
    lines: list[Callable[[float], None]] = field(default_factory=list)


class RingLog:
    """Runs a ring under loads; ``log`` are its lines, ``truth`` what was so."""

    def __init__(self, ring: Ring, loads: Sequence[Load]) -> None:
        self.ring = ring
        self.rng = random.Random(ring.seed)
        self.length = ring.pp + ring.depth
        self.cap = ring.cap or max(ring.max_running // ring.pp, 1)
        self.slots = [_Slot() for _ in range(self.length)]
        self.queue: list[Request] = []
        self.log: list[str] = []
        self.truth: list[Truth] = []
        self.clock = 0.0
        self.busy = [0.0] * ring.pp
        self.free = [0.0] * ring.pp
        self.chunked: Request | None = None
        self.decodes = 0
        self.generated = 0
        self.last_line = [0.0] * ring.pp
        self.last_prefill = 0.0
        self.total_generated = 0
        self._ids = itertools.count()
        self._coming: list[tuple[float, int, Request]] = []
        self._left: dict[int, list[int]] = {}
        self._loads = list(loads)
        self._announce()
        for number, load in enumerate(self._loads):
            self._left[number] = [load.requests]
            for client in range(load.clients):
                wait = load.stagger_s * client / max(load.clients, 1)
                self._ask(load.at + wait, number)
        self._run()

    # ------------------------------------------------------------ requests

    def _ask(self, second: float, number: int) -> None:
        left = self._left[number]
        if not left[0]:
            return
        left[0] -= 1
        load = self._loads[number]
        request = Request(load.prompt(self.rng), load.output(self.rng), number)
        heapq.heappush(self._coming, (second, next(self._ids), request))

    def _answer(self, request: Request) -> None:
        if self.ring.http:
            text = '127.0.0.1:41234 - "POST /generate HTTP/1.1" 200 OK'
            self._print(self.clock, None, f"INFO:     {text}")
        self._ask(self.clock + 0.002, request.client)

    @property
    def live(self) -> int:
        """Requests that hold a row."""
        held = sum(len(s.running) + len(s.new) for s in self.slots)
        return held + (self.chunked is not None)

    @property
    def held(self) -> int:
        """KV tokens in use."""
        every = [r for s in self.slots for r in (*s.running, *s.new)]
        every += [self.chunked] if self.chunked is not None else []
        return sum(r.prefilled + max(r.done - 1, 0) for r in every)

    # ------------------------------------------------------------ the loop

    def _run(self) -> None:
        for index in itertools.cycle(range(self.length)):
            if index == 0 and not self.live and not self.queue:
                if not self._coming:
                    return
                self.clock = max(self.clock, self._coming[0][0])
            self._turn(index)

    def _turn(self, index: int) -> None:
        slot, ring = self.slots[index], self.ring
        self.clock += 2e-5
        if slot.batch:
            self.clock = max(self.clock + ring.host_s, slot.ready)
            self._process(slot)
        while self._coming and self._coming[0][0] <= self.clock:
            self.queue.append(heapq.heappop(self._coming)[2])
        new, tokens = self._admit(slot)
        if new or tokens:
            self._launch(slot, "prefill", tokens, len(new))
        elif slot.running:
            self._launch(slot, "decode", 0, len(slot.running))

    def _admit(self, slot: _Slot) -> tuple[list[Request], int]:
        ring = self.ring
        room = min(self.cap - len(slot.running), ring.max_running - self.live)
        if ring.policy == "even":
            demand = min(self.live + len(self.queue), ring.max_running)
            room = min(room, -(-demand // ring.pp) - len(slot.running))
        budget, running = ring.chunk, len(slot.running)
        new: list[Request] = []
        tokens = 0
        continued, self.chunked = self.chunked, None
        if continued is not None:
            take = min(continued.prompt - continued.prefilled, budget)
            continued.prefilled += take
            tokens += take
            if continued.prefilled < continued.prompt:
                self.chunked = continued
            else:
                new.append(continued)
                room -= 1
        while self.queue and room > 0 and tokens < budget and self.chunked is None:
            request = self.queue[0]
            worst = sum(
                r.prompt + r.output for s in self.slots for r in (*s.running, *s.new)
            ) + sum(r.prompt + r.output for r in new)
            if worst + request.prompt + request.output > ring.kv_tokens:
                break
            self.queue.pop(0)
            room -= 1
            take = min(request.prompt, budget - tokens)
            request.prefilled = take
            tokens += take
            if take < request.prompt:
                self.chunked = request
            else:
                new.append(request)
        slot.new = new
        if new or tokens:
            self._prefill_line(slot, running, len(new), tokens)
        return new, tokens

    def _launch(self, slot: _Slot, kind: str, tokens: int, size: int) -> None:
        ring = self.ring
        at = self.clock
        for stage in range(ring.pp):
            spent = (
                ring.prefill_s(stage, tokens)
                if kind == "prefill"
                else ring.stage_s(stage, size)
            )
            at = max(at, self.free[stage]) + spent
            self.free[stage] = at
            self.busy[stage] += spent
            at += ring.hop_s
        slot.batch, slot.ready = kind, at

    def _process(self, slot: _Slot) -> None:
        """The result of a slot's batch is there: count, finish, log."""
        kind, slot.batch = slot.batch, ""
        batch = slot.new if kind == "prefill" else slot.running
        for request in batch:
            request.done += 1
        if kind == "prefill":
            for write in slot.lines:
                write(self.clock)
            slot.lines = []
        else:
            self.decodes += 1
            self.generated += len(batch)
            self.total_generated += len(batch)
            if self.decodes % self.ring.interval == 0:
                self._decode_line(len(batch))
        slot.running = slot.running + (slot.new if kind == "prefill" else [])
        if kind == "prefill":
            slot.new = []
        over = [r for r in slot.running if r.done >= r.output]
        slot.running = [r for r in slot.running if r.done < r.output]
        for request in over:
            self._answer(request)

    # ------------------------------------------------------------ the log

    def _print(self, second: float, rank: int | None, message: str) -> None:
        stamp = lines.head(self.ring.shape, START + second, rank)
        self.log.append(stamp + message)

    def _announce(self) -> None:
        if not self.ring.announce:
            return
        ring = self.ring
        args = lines.server_args(
            ring.shape,
            pp_size=ring.pp,
            pp_max_micro_batch_size=ring.cap,
            pp_async_batch_depth=ring.depth,
            max_running_requests=ring.max_running,
            chunked_prefill_size=ring.chunk,
            decode_log_interval=ring.interval,
        )
        self._print(0.0, None, args)
        for rank in range(ring.pp):
            text = lines.limits(ring.max_running, ring.kv_tokens, ring.chunk)
            self._print(1.0, rank, text)

    def _wrong(self, rank: int) -> int:
        wrong = rank == self.ring.wrong_rank and self.clock >= self.ring.wrong_from
        return 1 if wrong else 0

    def _prefill_line(
        self, slot: _Slot, running: int, finished_new: int, tokens: int
    ) -> None:
        new = finished_new + (self.chunked is not None)
        scheduled = len(self.queue)
        pending = sum(r.prompt for r in self.queue)
        if self.chunked is not None:
            pending += self.chunked.prompt - self.chunked.prefilled
        usage = self.held / self.ring.kv_tokens
        total = self.live
        wrong = [self._wrong(rank) for rank in range(self.ring.pp)]

        def write(second: float) -> None:
            # From 0.5.9 on the line is printed later, with the queue of that time.
            queue = len(self.queue)
            gap = max(second - self.last_prefill, 1e-6)
            self.last_prefill = second
            for rank in range(self.ring.pp):
                text = lines.prefill(
                    self.ring.shape,
                    max(new - wrong[rank], 0),
                    tokens,
                    usage,
                    running,
                    queue + wrong[rank],
                    pending,
                    tok_s=tokens / gap,
                    occupancy=self._share(rank, second),
                )
                self._print(second, rank, text)

        if self.ring.plugin_lines:
            slots = [len(s.running) + len(s.new) for s in self.slots]
            shown = "/".join(map(str, slots))
            text = (
                f"ppfix admission, #slot: 0, #new-seq: {new}, #slot-req: 0, "
                f"#share: 0, #cap: {self.cap}, #total-req: {total}, "
                f"#queue-req: {scheduled}, #slots: {shown}"
            )
            self._print(self.clock, 0, text)
        if self.ring.shape.version < (0, 5, 9):
            write(self.clock)
        else:
            slot.lines.append(write)

    def _share(self, rank: int, second: float) -> float:
        share = self.busy[rank] / max(second - self.last_line[rank], 1e-9)
        return min(share, 1.0)

    def _decode_line(self, size: int) -> None:
        ring = self.ring
        slots = tuple(len(s.running) + len(s.new) for s in self.slots)
        for rank in range(ring.pp):
            second = self.clock + ring.hop_s * rank
            tok_s = self.generated / max(second - self.last_line[rank], 1e-9)
            text = lines.decode(
                ring.shape,
                max(size - self._wrong(rank), 0),
                self.held,
                self.held / ring.kv_tokens,
                tok_s,
                len(self.queue),
                occupancy=self._share(rank, second),
                count=self.decodes,
            )
            self._print(second, rank, text)
            if rank == 0:
                self.truth.append(Truth(START + second, slots, tok_s))
            self.last_line[rank] = second
            self.busy[rank] = 0.0
        self.generated = 0


def affine(fixed_ms: float, per_request_ms: float) -> Callable[[int, int], float]:
    """Stage time ``a + c * b``, the same on every stage."""
    return lambda stage, size: (fixed_ms + per_request_ms * size) / 1000.0


def joined(parts: Sequence[Iterator[str] | list[str]]) -> bytes:
    """Log bytes out of lines."""
    return "\n".join(itertools.chain.from_iterable(parts)).encode() + b"\n"
