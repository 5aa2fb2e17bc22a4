"""The admission log: one line per admission, deferrals summed up, a digest.

Lines follow SGLang's ``key: value`` style. Nothing is formatted while it is off.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from sglang_ppfix.compat import scheduler as compat
from sglang_ppfix.settings import LogLevel, Settings

if TYPE_CHECKING:
    from sglang_ppfix.hooks.ring import Ring
    from sglang_ppfix.hooks.turn import Turn

logger = logging.getLogger(__name__)

#: Why a turn ended with requests still waiting.
REASONS = (
    "share",  # the slot holds its share, the rest is for other slots
    "token share",  # the slot took its part of the prompt tokens
    "cap",  # pp_max_micro_batch_size
    "rows",  # max_running_requests
    "tokens",  # KV cache
    "prefill budget",  # chunked_prefill_size, max_prefill_tokens and the like
    "latch",  # batch_is_full from an earlier turn
    "delayer",  # SGLang did not even look at the queue
)


class AdmissionLog:
    """Counts and logs what the turns of one rank do."""

    def __init__(self, ring: Ring, settings: Settings) -> None:
        self.ring = ring
        self.admissions = 0
        self.new_seqs = 0
        self.requeued = 0
        self.deferred: Counter[str] = Counter()
        self.occupancy = [0] * ring.length
        self.total = 0
        self.share = 0
        self._rank = compat.pp_rank(ring.scheduler)
        self._leads = compat.tp_rank(ring.scheduler) == 0
        self._digest = hashlib.blake2b(digest_size=8)
        self._file = self._open(settings.decision_log)
        self.level = settings.log
        self.last_change: dict[str, Any] | None = None

    def set_level(self, level: LogLevel) -> None:
        """Change how much is logged."""
        self.level = level

    def digest(self) -> str:
        """Hash over every admission so far; the same on every rank that agrees."""
        return self._digest.hexdigest()

    def speaks(self, level: LogLevel) -> bool:
        """Whether this rank logs lines of ``level``."""
        if not self._leads or self.level is LogLevel.OFF:
            return False
        if self.level is LogLevel.ALL_RANKS:
            return True
        return self._rank == 0 and level in (LogLevel.SUMMARY, self.level)

    def changed(self) -> None:
        """The switch was changed in this iteration."""
        ring = self.ring
        self.last_change = {
            "iteration": ring.iteration,
            "policy": ring.policy.value,
            "target_slots": ring.slots,
            "digest": self.digest(),
        }
        self._record_line(json.dumps([ring.iteration, ring.policy.value, ring.slots]))
        if self._leads and self._rank == 0:
            logger.info(
                "ppfix change, policy: %s, target slots: %d, cap: %s, log: %s, "
                "iteration: %d, digest: %s",
                ring.policy.value,
                ring.slots,
                compat.read_cap(),
                self.level.value,
                ring.iteration,
                self.digest(),
            )

    def end_turn(self, turn: Turn, new_batch: Any) -> None:
        """A slot's turn to take in requests is over."""
        waiting = len(self.ring.scheduler.waiting_queue)
        if waiting:
            self.deferred[self._reason(turn, new_batch)] += 1
        if new_batch is None:
            return
        plan = self.ring.plan(turn)
        new = new_batch.reqs[: _new_count(new_batch)]
        self.admissions += 1
        self.new_seqs += len(new)
        self.occupancy = turn.occupancy
        self.share = plan.shares[turn.slot]
        self.total = plan.live + sum(req is not turn.chunked_req for req in new)
        self._record(turn, [req.rid for req in new])
        if self.speaks(LogLevel.ADMISSIONS):
            logger.info(
                "ppfix admission, #slot: %d, #new-seq: %d, #slot-req: %d, #share: %d, "
                "#cap: %d, #total-req: %d, #queue-req: %d, #slots: %s",
                turn.slot,
                len(new),
                self.occupancy[turn.slot],
                self.share,
                compat.read_cap() or 0,
                self.total,
                waiting,
                "/".join(map(str, self.occupancy)),
            )

    def _reason(self, turn: Turn, new_batch: Any) -> str:
        if turn.refusal is not None:
            return turn.refusal
        scheduler = self.ring.scheduler
        if turn.latched and turn.batch.batch_is_full:
            return "latch"
        if new_batch is None and not turn.batch.batch_is_full:
            return "delayer"
        plan = self.ring.plan(turn)
        return "rows" if plan.live >= scheduler.max_running_requests else "cap"

    def _record(self, turn: Turn, rids: list[str]) -> None:
        decision = [self.ring.iteration, turn.slot, self.share, rids]
        self._record_line(json.dumps(decision, separators=(",", ":")))

    def _record_line(self, line: str) -> None:
        self._digest.update(line.encode())
        if self._file is not None:
            self._file.write(line + "\n")

    def log_summary(self) -> None:
        """One line of what was admitted and deferred so far."""
        logger.info(
            "ppfix summary, #lap: %d, #admission: %d, #new-seq: %d, #requeued: %d, "
            "deferred %s, #total-req: %d, #slots: %s, digest: %s",
            self.ring.laps.count,
            self.admissions,
            self.new_seqs,
            self.requeued,
            ", ".join(f"{reason}: {self.deferred[reason]}" for reason in REASONS),
            self.total,
            "/".join(map(str, self.occupancy)),
            self.digest(),
        )

    def _open(self, folder: Path | None) -> TextIO | None:
        if folder is None:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        tp = compat.tp_rank(self.ring.scheduler)
        # Line buffered: what was decided must be there when the process is killed.
        path = folder / f"decisions.pp{self._rank}.tp{tp}.jsonl"
        return path.open("w", buffering=1, encoding="utf-8")


def _new_count(batch: Any) -> int:
    """Requests that a prefill batch took in; mixed chunks append running ones."""
    return len(batch.reqs) - len(batch.decoding_reqs or ())
