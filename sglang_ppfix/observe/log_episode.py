"""A busy period of a pipeline: what went in, and what the KV cache must hold of it.

Tokens that were prefilled and generated since the rank was idle are either held or were
given back by requests that ended. That tells how many admitted requests are still
running, and that nothing had ended yet while a burst filled the slots.
"""

from dataclasses import dataclass, field

from .log_windows import Window

#: Cached tokens above this share of the new ones spoil the balance: they are shared.
_CACHED_SHARE = 0.05
#: A line may be this much later than its stamp says.
_STAMP_S = 1.0
#: The cache may seem to gain this much more than throughput times time: it takes a
#: token in when its micro-batch is launched, the throughput counts it when it is done.
_GAIN_SHARE = 0.1


@dataclass
class Episode:
    """One busy period.

    Attributes:
        number: counts the busy periods of a log.
        known: the first decode line fits what went in, so nothing was left from before.
        admitted, tokens, cached: requests, prefilled tokens, cached tokens so far.
        generated: tokens decoded so far.
        finished: HTTP answers so far.
        retracted: sent back to the queue so far; not in ``admitted`` any more.
        burst: sizes of the filled slots while nothing has ended; None afterwards.
    """

    number: int = 0
    known: bool = False
    admitted: int = 0
    tokens: int = 0
    cached: int = 0
    generated: float = 0.0
    finished: int = 0
    retracted: int = 0
    burst: list[int] | None = field(default_factory=list)
    _first_decode: bool = True
    _held: int = -1
    _tokens: int = 0
    #: How much later the last line was than its stamp, which may be of a whole second.
    #: Starts at the most that it can be, so that nothing seems to have ended early.
    _late_s: float = 0.0

    def admit(self, requests: int, tokens: int, cached: int) -> None:
        """A prefill took requests in."""
        self.admitted += requests
        self.tokens += tokens
        self.cached += cached

    def seat(self, running: int, new: int) -> None:
        """A slot that held ``running`` requests took ``new`` ones in."""
        if self.burst is None:
            return
        if running in self.burst:
            self.burst[self.burst.index(running)] = running + new
        elif running == 0:
            self.burst.append(new)
        else:
            self.burst = None

    def retract(self, requests: int) -> None:
        """Requests went back to the queue: they will be admitted again."""
        self.admitted -= requests
        self.retracted += requests
        self.burst = None

    def spoil(self) -> None:
        """Something is missing from the log: nothing can be balanced any more."""
        self.known = False
        self.burst = None

    def balance(
        self,
        window: Window,
        held: int,
        seconds: float,
        whole: bool,
        tok_s: float,
        most: float,
    ) -> None:
        """A decode line: write into its window what is in flight, where it is known.

        Args:
            window: the line's window.
            held: KV tokens held, -1 when the line has none.
            seconds: since the line before, by the stamps.
            whole: stamps are of whole seconds.
            tok_s: the line's throughput.
            most: tokens that can have been decoded before the first line.
        """
        window.episode, window.seats = -1, None
        if self._first_decode:
            self._first_decode = False
            extra = held - self.tokens
            most += self.cached + self.tokens
            self.known = held >= 0 and self.admitted > 0 and extra <= most
            self.generated = max(float(extra), 0.0)
            self._late_s = _STAMP_S if whole else 0.0
        else:
            rise = held - self._held - (self.tokens - self._tokens)
            self.generated += self._decoded(rise, seconds, tok_s)
        self._held, self._tokens = held, self.tokens
        if not self.known or self.cached > _CACHED_SHARE * self.tokens:
            return
        prompt = self.tokens / max(self.admitted, 1)
        # The cache cannot gain more than was decoded: else an admission was not logged.
        impossible_s = self._late_s - (2 * _STAMP_S if whole else _STAMP_S)
        if impossible_s * tok_s > 0.5 * prompt + 0.03 * held:
            self.spoil()
            return
        freed = self.tokens + self.generated - held
        window.admitted, window.freed = self.admitted, freed
        window.finished, window.episode = self.finished, self.number
        window.retracted = self.retracted
        if self.burst is None:
            return
        if freed > max(0.5 * prompt, 0.03 * held):
            self.burst = None
            return
        window.seats = tuple(sorted(self.burst, reverse=True))

    def _decoded(self, rise: int, seconds: float, tok_s: float) -> float:
        """Tokens since the line before: no fewer than the KV cache gained.

        Throughput times time alone would drift where several lines share a stamp of a
        whole second: the line that steps to the next second would count for them all.
        """
        if tok_s <= 0 or seconds < 0:
            return float(max(rise, 0))
        seconds -= self._late_s
        tokens = max(float(rise), tok_s * seconds, 0.0)
        late = tokens / tok_s - seconds
        if late > _STAMP_S:
            late = max(late - _GAIN_SHARE * tokens / tok_s, _STAMP_S)
        self._late_s = late
        return tokens
