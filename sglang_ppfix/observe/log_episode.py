"""A busy period of a pipeline: what went in, and what the KV cache must hold of it.

Tokens that were prefilled and generated since the rank was idle are either held or were
given back by requests that ended. That tells how many admitted requests are still
running, and that nothing had ended yet while a burst filled the slots.
"""

from dataclasses import dataclass, field

from .log_windows import Window

#: Cached tokens above this share of the new ones spoil the balance: they are shared.
_CACHED_SHARE = 0.05


@dataclass
class Episode:
    """One busy period.

    Attributes:
        number: counts the busy periods of a log.
        known: the first decode line fits what went in, so nothing was left from before.
        admitted, tokens, cached: requests, prefilled tokens, cached tokens so far.
        generated: tokens decoded so far.
        finished: HTTP answers so far.
        burst: sizes of the filled slots while nothing has ended; None afterwards.
    """

    number: int = 0
    known: bool = False
    admitted: int = 0
    tokens: int = 0
    cached: int = 0
    generated: float = 0.0
    finished: int = 0
    burst: list[int] | None = field(default_factory=list)
    _first_decode: bool = True
    _freed: float = 0.0

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

    def spoil(self) -> None:
        """Requests will be admitted twice: nothing can be balanced any more."""
        self.known = False
        self.burst = None

    def balance(
        self,
        window: Window,
        held: int,
        tokens: float | None,
        tokens_s: float,
        most: float,
    ) -> None:
        """A decode line: write into its window what is in flight, where it is known.

        Args:
            window: the line's window.
            held: KV tokens held, -1 when the line has none.
            tokens: tokens decoded since the line before, None when not known.
            tokens_s: tokens per second; a stamp may be a second off.
            most: tokens that can have been decoded before the first line.
        """
        window.episode, window.seats = -1, None
        if self._first_decode:
            self._first_decode = False
            extra = held - self.tokens
            most += self.cached + self.tokens
            self.known = held >= 0 and self.admitted > 0 and extra <= most
            self.generated = max(float(extra), 0.0)
        elif tokens is not None:
            self.generated += tokens
        if not self.known or self.cached > _CACHED_SHARE * self.tokens:
            return
        freed = self.tokens + self.generated - held
        prompt = self.tokens / max(self.admitted, 1)
        # Tokens that are given back stay given back: else an admission was not logged.
        if freed < self._freed - (tokens_s + 0.5 * prompt + 0.03 * held):
            self.spoil()
            return
        self._freed = max(self._freed, freed)
        window.admitted, window.freed = self.admitted, freed
        window.finished, window.episode = self.finished, self.number
        if self.burst is None:
            return
        if freed > max(0.5 * prompt, 0.03 * held):
            self.burst = None
            return
        window.seats = tuple(sorted(self.burst, reverse=True))
