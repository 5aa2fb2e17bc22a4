"""The micro-batch ring of one scheduler process, as the rule needs to see it."""

import logging
from typing import Any

from sglang_ppfix.compat import scheduler as compat
from sglang_ppfix.observe.admissions import AdmissionLog
from sglang_ppfix.observe.laps import Laps
from sglang_ppfix.observe.metrics import RingMetrics
from sglang_ppfix.observe.stage_clock import StageClock, event_factory
from sglang_ppfix.observe.summary import Summary
from sglang_ppfix.policy import TurnPlan, plan_turn, target_slots, token_share
from sglang_ppfix.settings import Policy, Settings

from . import landing
from .cap import current_cap
from .change import Change
from .chooser import Chooser
from .courier import Courier
from .occupants import Occupants
from .turn import Turn

logger = logging.getLogger(__name__)


class Ring:
    """State of the ring and the plan of the present turn.

    Reads only what is the same on every rank in the same loop iteration: slot
    membership, the ordered waiting queue, counters and settings.
    """

    def __init__(self, scheduler: Any, settings: Settings) -> None:
        self.scheduler = scheduler
        self.policy = settings.policy
        self.length: int = scheduler.pp_loop_size
        self.occupants = Occupants(scheduler, self.length)
        self.stages: int = scheduler.pp_group.world_size
        self.requested_slots = settings.slots
        self.slots = self._target_slots(settings.slots)
        # Every rank keeps what rank 0 chose, for when the policy is auto again.
        self._chosen_slots = self.default_slots()
        self.leads = compat.pp_rank(scheduler) == 0 and compat.tp_rank(scheduler) == 0
        self.iteration = -1
        self.slot = -1
        self.turn: Turn | None = None
        self.log = AdmissionLog(self, settings)
        self.laps = Laps(self.length)
        self.clock = self._stage_clock()
        self.metrics = self._metrics()
        self.summary = Summary(self, settings.summary_laps)
        self.chooser = self._chooser()
        self.courier = Courier(
            compat.pp_rank(scheduler), bool(scheduler.pp_group.is_last_rank)
        )
        self.refused: str | None = None
        self._pending: dict[str, int] = {}
        # Per slot: what (live, waiting, cap) were when its latch was last tried.
        self._latch_tried: list[tuple[int, int, int] | None] = [None] * self.length
        # Turns in a row that passed the head of the queue on to another slot.
        self.passed = 0

    @property
    def balances(self) -> bool:
        """Whether the plugin, not stock, decides now."""
        return self.policy.balances

    @property
    def chooses(self) -> bool:
        """Whether rank 0 chooses the number of slots."""
        return self.policy is Policy.AUTO and self.requested_slots is None

    @property
    def watches(self) -> bool:
        """Whether turns are planned and counted at all."""
        return self.policy is not Policy.STOCK

    def apply(self, change: Change) -> None:
        """Change the switch; called on every rank in the same loop iteration."""
        if change.policy is not None:
            self.policy = change.policy
        if change.slots is not None:
            self.requested_slots = change.slots or None
        if self.chooses:
            self.slots = self._chosen_slots
        else:
            self.slots = self._target_slots(self.requested_slots)
        if change.log is not None:
            self.log.set_level(change.log)
        self._follow()
        self.log.changed()

    def request(self, codes: dict[str, int]) -> None:
        """Rank 0 only: have every rank apply a change in the same iteration."""
        self._pending.update(codes)

    def pending_codes(self) -> dict[str, int]:
        """What waits to be sent; it is handed out once."""
        if not self._pending:
            return self._pending
        codes, self._pending = self._pending, {}
        return codes

    def choose(self, slots: int) -> None:
        """Rank 0 chose the number of slots; every rank follows in this iteration."""
        self._chosen_slots = slots
        if self.chooses:
            self.slots = slots
            self._follow()
            self.log.changed()

    def default_slots(self) -> int:
        """Target slots that the ring has unless others are asked for or chosen."""
        return self._target_slots(None)

    def _follow(self) -> None:
        current_cap().follow(self.policy, self.slots)
        # What a slot was refused before the change says nothing about now.
        self._latch_tried = [None] * self.length
        self.passed = 0

    def _target_slots(self, requested: int | None) -> int:
        return target_slots(self.stages, self.length - self.stages, requested)

    def begin_iteration(self) -> None:
        """Called once per loop iteration, before stock picks the batch to run."""
        self.iteration += 1
        running, slots = self.scheduler.running_batch, self.scheduler.running_mbs
        following = (self.slot + 1) % self.length
        # Up to 0.5.15.post1 a pause in mode retract puts another batch in its place.
        if slots[following] is not running:
            found = [slot for slot, batch in enumerate(slots) if batch is running]
            following = found[0] if found else following
        self.slot = following

    def end_iteration(self, batch: Any) -> None:
        """Called once per loop iteration, with the batch that stock runs, or None."""
        size = 0 if batch is None else len(batch.reqs)
        decode = batch is not None and batch.forward_mode.is_decode()
        if self.laps.end_turn(self.slot, size, decode, self.slots):
            self.summary.end_lap()
            if self.chooser is not None and self.chooses:
                self.chooser.end_lap()
        if self.metrics is not None and self.slot == 0:
            self.metrics.update(self)

    def _chooser(self) -> Chooser | None:
        if not self.leads:
            return None
        if not compat.has_control_channel():
            if self.policy is Policy.AUTO:
                logger.warning(
                    "ppfix: policy auto cannot change the number of slots in this "
                    "release (it needs 0.5.13): %d slots are filled",
                    self.slots,
                )
            return None
        return Chooser(self)

    def _stage_clock(self) -> StageClock | None:
        new_event = event_factory(self.scheduler)
        return None if new_event is None else StageClock(new_event)

    def _metrics(self) -> RingMetrics | None:
        collector = compat.metrics_collector(self.scheduler)
        if collector is None:
            return None
        return RingMetrics(collector.labels, compat.pp_rank(self.scheduler))

    def begin_turn(self, batch: Any) -> Turn:
        """A slot may take in requests now; ``batch`` is its running batch."""
        self.turn = Turn(self.slot, batch, self.scheduler.chunked_req)
        if not batch.batch_is_full:
            # The next latch is another one, though the ring may look the same.
            self._latch_tried[self.slot] = None
        waits = batch.batch_is_full and bool(self.scheduler.waiting_queue)
        # Without a free row there is nothing to open the slot for.
        if (
            waits
            and self.balances
            and self.scheduler.req_to_token_pool.available_size()
        ):
            self._retry_latch(self.turn)
        return self.turn

    def plan(self, turn: Turn) -> TurnPlan:
        """Plan of the turn, computed once: the queue is final when stock asks."""
        if turn.plan is None:
            scheduler = self.scheduler
            turn.held = self.occupants.by_slot(turn.slot, turn.batch)
            turn.occupancy = [len(reqs) for reqs in turn.held]
            turn.chunk_tokens = landing.chunk_tokens(scheduler, turn.occupancy)
            if turn.chunked_req is not None:
                turn.occupancy[landing.of_chunk(scheduler, turn)] += 1
            turn.cap = compat.read_cap() or 1
            turn.plan = self._plan_for(turn, len(scheduler.waiting_queue))
        return turn.plan

    def plan_rest(self, turn: Turn) -> TurnPlan:
        """Plan for what the turn has left of the queue: it may have taken places in two
        slots, its own and the one in which a prompt lands."""
        first = self.plan(turn)
        taken = self.taken(turn)
        if not taken:
            return first
        return self._plan_for(turn, len(self.scheduler.waiting_queue) - taken)

    def taken(self, turn: Turn) -> int:
        """Requests that the turn took in."""
        return sum(turn.occupancy) - self.plan(turn).live

    def _plan_for(self, turn: Turn, waiting: int) -> TurnPlan:
        rows = self.scheduler.max_running_requests
        return plan_turn(turn.occupancy, waiting, rows, self.slots, turn.cap)

    def token_share(self, turn: Turn) -> int:
        """Prompt tokens after which the turn leaves the rest to the next slots."""
        if turn.token_share is None:
            plan = self.plan(turn)
            admissible = self.scheduler.waiting_queue[: plan.admissible]
            in_flight = self.occupants.prefill_tokens(turn.slot)
            turn.token_share = token_share(
                sum(
                    len(req.origin_input_ids) + len(req.output_ids)
                    for req in admissible
                ),
                # A slot without room takes no prompt, whatever its part would be. This
                # one has taken in something when it is asked.
                [
                    in_flight[slot]
                    for slot, share in enumerate(plan.shares)
                    if slot == turn.slot or turn.occupancy[slot] < share
                ],
            )
        return turn.token_share

    def _retry_latch(self, turn: Turn) -> None:
        """Clear ``batch_is_full`` when something changed since it was last tried.

        Stock clears it only when a request leaves this very slot, although another
        slot's request frees rows and tokens, and a new one raises the share.
        """
        plan = self.plan(turn)
        now = (plan.live, len(self.scheduler.waiting_queue), turn.cap)
        # Also at its share a slot may start a prompt that lands elsewhere.
        if len(turn.batch.reqs) < turn.cap and self._latch_tried[turn.slot] != now:
            self._latch_tried[turn.slot] = now
            turn.batch.batch_is_full = False


_ring: Ring | None = None


def open_ring(scheduler: Any, settings: Settings) -> Ring:
    """Make the ring of this process's scheduler, replacing an earlier one."""
    global _ring
    _ring = Ring(scheduler, settings)
    return _ring


def close_ring() -> None:
    """Forget the ring: every hook is stock again."""
    global _ring
    _ring = None


def current_ring() -> Ring | None:
    """The ring of this process, None while it has none. One scheduler a process."""
    return _ring
