"""A run: a scheduler's decisions on a ring's clock."""

from collections import deque

from .clock import RingClock
from .load import Arrivals, Load
from .outcome import Occupancy, Outcome, summarize
from .profile import Profile
from .scheduler import Scheduler
from .server import Server
from .slot import Forward
from .timeline import Span

# Laps after which the context read by a decode is looked at again, where it counts.
_CONTEXT_LAPS = 16


class Engine:
    """One server under one load.

    Deterministic: the same arguments give the same outcome, with Numba or without.
    """

    def __init__(
        self,
        server: Server,
        profile: Profile,
        load: Load,
        scheduler: Scheduler,
        *,
        policy: str = "",
        keep_admissions: bool = False,
        record: bool = False,
        compiled: bool | None = None,
    ) -> None:
        """Prepare a run.

        Args:
            server: settings.
            profile: stage times; one per stage of ``server``.
            load: requests.
            scheduler: decides; made for ``server``.
            policy: name of the scheduler, for the outcome.
            keep_admissions: keep (turn, slot, rids) of every prefill.
            record: keep every forward of every stage (slow: no turn is skipped).
            compiled: see :class:`RingClock`.

        Raises:
            ValueError: the profile has another number of stages than the server, or a
                request does not fit into the KV pool.
        """
        if profile.pp_size != server.pp_size:
            raise ValueError(
                f"profile {profile.name} has {profile.pp_size} stages, "
                f"the server has pp_size={server.pp_size}"
            )
        self.server, self.profile, self.load = server, profile, load
        self.scheduler, self.policy = scheduler, policy
        self.clock = RingClock(profile, server, compiled)
        self.arrivals = Arrivals(load, server.kv_tokens)
        self.occupancy = Occupancy()
        self.turn = 0
        self.spans: list[Span] | None = [] if record else None
        if profile.kv_read is not None:
            for slot in scheduler.slots:
                slot.longest = _CONTEXT_LAPS
        if keep_admissions:
            scheduler.admissions = []
        self._recent: deque[tuple[int, Forward | None]] = deque(
            [(0, None)] * server.pp_size, maxlen=server.pp_size
        )

    def run(self) -> Outcome:
        """Run until every request has ended."""
        scheduler, arrivals, clock = self.scheduler, self.arrivals, self.clock
        slots, length = scheduler.slots, self.server.slots
        recording = self.spans is not None
        while arrivals.left:
            turn = self.turn
            number = turn % length
            if arrivals.next <= clock.now:
                self._take_in()
            if scheduler.turn(number, turn):
                self._put(number)
            if scheduler.version != self.occupancy.version:
                self.occupancy.note(clock.now, scheduler)
            if scheduler.gone:
                self._forget_gone()
            if not scheduler.live and not scheduler.waiting:
                self._wait()
                continue
            event = turn + 1 if recording else scheduler.next_event(turn)
            self.turn = turn = turn + clock.run(event - turn, arrivals.next)
            if recording:
                self._record(number)
            number = turn % length
            if slots[number].alarm == turn:
                for request in scheduler.result(number, turn, clock.now):
                    arrivals.end(request.end)
        self.occupancy.note(clock.now, scheduler)
        scheduler.count_all(self.turn)
        return summarize(self)

    def _take_in(self) -> None:
        while self.arrivals.next <= self.clock.now:
            request, comes = self.arrivals.pop()
            if comes:
                self.scheduler.arrive(request)
            else:
                self.scheduler.abort(request, self.turn)

    def _put(self, number: int) -> None:
        """Tell the clock what slot ``number`` launches now."""
        forward = self.scheduler.slots[number].forward
        if forward is None:
            self.clock.put(None)
            return
        row = self.profile.row(forward.decodes, forward.tokens)
        if self.profile.kv_read is not None and forward.decodes:
            slot = self.scheduler.slots[number]
            context = sum(r.prompt + r.said() for r in slot.running)
            row = tuple(
                time + kv * context
                for time, kv in zip(row, self.profile.kv_read, strict=True)
            )
        self.clock.put(row)

    def _wait(self) -> None:
        """An empty ring waits for the next request."""
        self.scheduler.idle()
        self.turn += self.clock.skip(self.arrivals.next)

    def _forget_gone(self) -> None:
        for request in self.scheduler.gone:
            request.end = self.clock.now
            self.arrivals.end(request.end)
        self.scheduler.gone.clear()

    def _record(self, number: int) -> None:
        """Note what each stage was given in its present turn."""
        assert self.spans is not None
        self._recent.appendleft((number, self.scheduler.slots[number].forward))
        for stage, (slot, forward) in enumerate(self._recent):
            if forward is None:
                continue
            end = self.clock.launched(stage)
            row = self.profile.row(forward.decodes, forward.tokens)
            size = forward.decodes + len(forward.prefill)
            kind = "decode" if not forward.prefill else "prefill"
            if forward.prefill and forward.decodes:
                kind = "mixed"
            self.spans.append(Span(stage, slot, end - row[stage], end, size, kind))
