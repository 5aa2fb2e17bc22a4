"""One pipeline out of a log: its ranks in step, and its lead rank as windows.

Throughput, tokens and queue are the same on every PP rank, so one rank, the lead, is
read in full; the others are only compared with it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from .log_config import LogConfig
from .log_episode import Episode
from .log_lines import Values
from .log_ranks import LockStep, RankLines, prefill_code
from .log_windows import Window, WindowSeries

DECODE_LOG_INTERVAL = 40
#: Shortest pause that counts as idle, and how many usual gaps it must be long.
_IDLE_S = 3.0
_IDLE_GAPS = 4.0
#: A clock that runs back less than this is ranks writing out of order.
_BACK_S = 2.0
#: The lead's lines between two comparisons of the ranks, as a bit mask.
_COMPARE_MASK = 0xFFF
#: Digests of the plugin kept, over all ranks.
_MOST_DIGESTS = 65536


@dataclass
class Skipped:
    """Lines that say something impossible, by reason."""

    reasons: dict[str, int] = field(default_factory=dict)

    def add(self, reason: str, number: int = 1) -> None:
        """Count lines that were skipped."""
        if number:
            self.reasons[reason] = self.reasons.get(reason, 0) + number


class RankLog:
    """Where the lines of one PP rank of a pipeline go.

    Attributes:
        number: PP rank.
        lead: whether this rank is read in full.
        pipeline: the pipeline of the rank.
        code, time: append a line's code and its second, for the comparison of ranks.
    """

    __slots__ = ("code", "lead", "number", "pipeline", "time")

    def __init__(
        self, pipeline: "PipelineLog", rank: int, lines: RankLines, lead: bool
    ) -> None:
        self.number = rank
        self.lead = lead
        self.pipeline = pipeline
        self.code = lines.codes.append
        self.time = lines.seconds.append

    def add(self, decode: bool, second: float, values: Values) -> None:
        """Take in a line; values in the order of the parser.

        Raises:
            ValueError: a value that should be a number is none.
        """
        pipeline, running = self.pipeline, int(values[0])
        busy = values[8] if decode else values[7]
        if busy:
            pipeline.busy_share(self.number, float(busy))
        if decode:
            self.code(running)
            self.time(second)
            if self.lead:
                pipeline.lead_decode(second, running, values)
            return
        new_seqs, new_tokens = int(values[1]), int(values[3] or 0)
        self.code(prefill_code(new_seqs, new_tokens, running))
        self.time(second)
        if self.lead:
            pipeline.lead_prefill(second, running, new_seqs, new_tokens, values)


class PipelineLog:
    """Everything that the log of one pipeline says."""

    def __init__(self, config: LogConfig, skipped: Skipped) -> None:
        self.config = config
        self.skipped = skipped
        self.steps = LockStep()
        self.series = WindowSeries()
        #: The rank that is read in full: the first that printed.
        self.lead: RankLog | None = None
        #: Lines have SGLang's own head, so rank tags are there if they should be.
        self.plain = True
        #: Ranks that print the same line without naming themselves.
        self.copies = 1
        self.decode_lines = 0
        self.prefill_lines = 0
        self.generated = 0.0
        self.last_second = math.nan
        self.occupancy: dict[int, list[float]] = {}
        self.prompt_tokens = 0
        self.requests = 0
        self.cached_tokens = 0
        #: Prefill lines come with the result, a lap after the admission (from 0.5.9).
        self.late_prefills = False
        self.slots: tuple[int, ...] | None = None
        self.stage_clock: dict[int, list[float]] = {}
        self.digests: dict[tuple[int, int], str] = {}
        self.strange_rises = 0
        self._ranks: dict[int, RankLog] = {}
        self._recent: list[tuple[object, ...]] = []
        self._episode = Episode()
        self._last_decode = math.nan
        self._usual_gap = 0.0
        self._last_kv = -1
        self._admitted_tokens = 0
        self._chunk_open = False

    def rank(self, number: int) -> RankLog:
        """The log of a PP rank, made on first use."""
        found = self._ranks.get(number)
        if found is None:
            lines = self.steps.rank(number)
            found = RankLog(self, number, lines, self.lead is None)
            self._ranks[number] = found
            self.lead = self.lead or found
        return found

    # ---------------------------------------------------------------- other lines

    def plugin_slots(self, slots: tuple[int, ...]) -> None:
        """Take in the occupancy of every slot, out of the plugin's own line."""
        self.slots = slots

    def plugin_busy(self, percents: Sequence[float]) -> None:
        """Take in the busy share of every stage, out of the plugin's own line."""
        for rank, percent in enumerate(percents):
            total = self.stage_clock.setdefault(rank, [0.0, 0.0])
            total[0] += percent / 100.0
            total[1] += 1

    def plugin_digest(self, rank: int, admissions: int, digest: bytes) -> None:
        """Take in a rank's digest over its first ``admissions`` admissions."""
        if len(self.digests) < _MOST_DIGESTS:
            self.digests[rank, admissions] = digest.decode()

    def http_answer(self) -> None:
        """An answer left the server."""
        self._episode.finished += 1

    def retracted(self, requests: int | None) -> None:
        """Requests went back to the queue; None where nobody says how many."""
        if requests is None:
            self._episode.spoil()
        else:
            self._episode.retract(requests)

    def busy_share(self, rank: int, percent: float) -> None:
        """Take in how busy a stage says it was."""
        if not math.isnan(percent):
            total = self.occupancy.setdefault(rank, [0.0, 0.0])
            total[0] += percent / 100.0
            total[1] += 1

    def finish(self) -> None:
        """The log has ended."""
        self.steps.finish()

    # ---------------------------------------------------------------- lead rank

    def lead_prefill(
        self,
        second: float,
        running: int,
        new_seqs: int,
        new_tokens: int,
        values: Values,
    ) -> None:
        """A prefill line of the lead rank."""
        if self.copies > 1 and self._is_copy(values[:5]):
            return
        self._compare()
        self.prefill_lines += 1
        window = self.series.open
        if running == 0 and not self._chunk_open:
            self._maybe_idle(second, window)
        if not self._clock(second):
            return
        if running == 0 and new_seqs == 1 and new_tokens <= 1:
            # SGLang's health check: one token in, one out, only on an idle server,
            # and no answer that counts.
            return
        episode = self._episode
        continued = 1 if self._chunk_open and new_seqs else 0
        cached = int(values[5] or 0)
        episode.admit(new_seqs - continued, new_tokens, cached)
        self.prompt_tokens += new_tokens + cached
        self.requests += new_seqs - continued
        self.cached_tokens += cached
        self._admitted_tokens += new_tokens + cached
        window.prefills += 1
        window.prefill_seqs += new_seqs - continued
        self.late_prefills = bool(values[8])
        window.prefill_tokens += new_tokens
        self._chunk_open = self._leaves_chunk(new_tokens, values)
        episode.seat(running, new_seqs - int(self._chunk_open))

    def lead_decode(self, second: float, running: int, values: Values) -> None:
        """A decode line of the lead rank."""
        if self.copies > 1 and self._is_copy((values[0], *values[2:4])):
            return
        self._compare()
        self.decode_lines += 1
        last = self._last_decode
        if not self._clock(second):
            return
        self._last_decode = second
        tok_s = float(values[1])
        held = int(values[3] or -1)
        accepted = float(values[7] or 1.0)
        seconds = second - last
        window = self.series.open
        self._impossible_rise(held, seconds, tok_s)
        first = math.isnan(seconds)  # the time before the first line is not known
        seconds = 0.0 if first else max(seconds, 0.0)
        tokens = tok_s * seconds
        most = 2.0 * self._interval * accepted * running
        self._episode.balance(window, held, seconds, second.is_integer(), tok_s, most)
        if first:
            return
        if self._impossible(tokens, seconds, accepted, running):
            self.skipped.add("clock jumped")
            return
        self.generated += tokens
        gap = max(seconds - window.idle_s, 0.0)
        self._usual_gap += (gap - self._usual_gap) * (0.2 if self._usual_gap else 1.0)
        self._fill(window, second, seconds, tokens, running, values)
        window.accepted += accepted
        window.kv = held
        window.inverse_tok_s += 1.0 / tok_s if tok_s > 0 else 0.0
        self.series.line_added()

    def _fill(
        self,
        window: Window,
        second: float,
        seconds: float,
        tokens: float,
        running: int,
        values: Values,
    ) -> None:
        window.second = second
        window.seconds += seconds
        window.lines += 1
        window.tokens += tokens
        window.logged[running] = window.logged.get(running, 0) + 1
        if values[2] and values[2] != b"0":
            window.queue += int(values[2])
            window.queue_lines += 1
        usage = float(values[4] or 0.0)
        if values[5]:
            usage = max(usage, float(values[5]))
        if usage > window.usage:
            window.usage = usage
        if values[6] == b"False":
            window.no_graph += 1
        window.slots = self.slots

    def _compare(self) -> None:
        if not (self.decode_lines + self.prefill_lines) & _COMPARE_MASK:
            self.steps.trim()

    def _is_copy(self, key: tuple[object, ...]) -> bool:
        """Whether another rank has printed this line, where ranks are not named."""
        if key in self._recent:
            self._recent.remove(key)
            return True
        self._recent.extend([key] * (self.copies - 1))
        del self._recent[: -8 * self.copies]
        return False

    def _clock(self, second: float) -> bool:
        """Whether the clock can be trusted at this line."""
        if second < self.last_second - _BACK_S:
            self.skipped.add("clock went back")
            self.last_second = self._last_decode = second
            return False
        self.last_second = second
        return True

    def _maybe_idle(self, second: float, window: Window) -> None:
        """An empty slot takes requests in: was the whole rank idle before?"""
        quiet = second - self.last_second
        limit = max(_IDLE_S, _IDLE_GAPS * self._usual_gap)
        if math.isnan(quiet) or quiet > limit:
            window.idle_s += 0.0 if math.isnan(quiet) else quiet
            self._episode = Episode(self._episode.number + 1)

    def _leaves_chunk(self, new_tokens: int, values: Values) -> bool:
        """Whether the last request of this prefill goes on in the next one.

        ``#pending-token`` is of the time of scheduling and counts the rest of a chunked
        request; ``#queue-req`` is of the time of printing, so they do not compare.
        """
        if values[6] == b"0":
            return False
        chunk = self.config.chunked_prefill_size or 0
        page = self.config.args.get("page_size")
        page = page if isinstance(page, int) and page > 0 else 1
        return 0 < chunk - page < new_tokens <= chunk

    @property
    def _interval(self) -> int:
        interval = self.config.args.get("decode_log_interval")
        return interval if isinstance(interval, int) else DECODE_LOG_INTERVAL

    def _impossible(
        self, tokens: float, seconds: float, accepted: float, running: int
    ) -> bool:
        """More tokens than 40 micro-batches can hold: the clock has jumped."""
        largest = self.config.max_running_requests or max(64, 16 * running)
        # A stamp without milliseconds is off by up to a second.
        slack = 1.05 * (1.0 + 1.0 / seconds) if seconds else 1.0
        return tokens > self._interval * accepted * largest * slack

    def _impossible_rise(self, held: int, seconds: float, tok_s: float) -> None:
        """Held KV tokens cannot grow by more than what was generated and admitted.

        They do where two servers write into one stream.
        """
        before, self._last_kv = self._last_kv, held
        admitted, self._admitted_tokens = self._admitted_tokens, 0
        rise = held - before - admitted
        if before < 0 or rise <= 0.05 * before or math.isnan(seconds):
            return
        # Stamps may be a second off; some prefills are launched but not printed yet.
        prompt = self.prompt_tokens / max(self.requests, 1)
        room = 1.5 * tok_s * (max(seconds, 0.0) + 1.0) + 8.0 * prompt + 256.0
        self.strange_rises += int(rise > room)
