"""Rows and KV tokens of one rank, and the budget of a prefill.

Source: SGLang 0.5.23, ``PrefillAdder``, ``PrefillBudget`` and
``NewTokenRatioTracker``, for page size 1 and no shared prefixes.
"""

import math
from collections.abc import Iterable

from .request import Request

# Environment defaults of SGLang 0.5.23.
CLIP_MAX_NEW_TOKENS = 4096
INIT_NEW_TOKEN_RATIO = 0.7
MIN_NEW_TOKEN_RATIO_FACTOR = 0.14
NEW_TOKEN_RATIO_DECAY_STEPS = 600
RETRACT_DECODE_STEPS = 20


class Memory:
    """What is free, and which share of their limit requests are expected to use.

    Attributes:
        rows: free rows, one per unfinished request that was admitted.
        free: free KV tokens; infinite for a pool that is more than enough.
        limited: whether tokens can run out at all.
        ratio: SGLang's ``new_token_ratio``.
    """

    def __init__(
        self, rows: int, tokens: int | None, conservativeness: float = 1.0
    ) -> None:
        self.rows = rows
        self.free: float = math.inf if tokens is None else tokens
        self.limited = tokens is not None
        self._start = min(INIT_NEW_TOKEN_RATIO * conservativeness, 1.0)
        self._least = min(self._start * MIN_NEW_TOKEN_RATIO_FACTOR, 1.0)
        self._decay = (self._start - self._least) / NEW_TOKEN_RATIO_DECAY_STEPS
        self.ratio = self._start

    def decode(self, requests: int, steps: int = 1) -> None:
        """``steps`` decodes of ``requests`` requests take their tokens."""
        self.free -= requests * steps
        self.ratio = max(self.ratio - self._decay * steps, self._least)

    def release(self, request: Request) -> None:
        """``request`` gives back its row and its tokens.

        The last token it said has no KV yet.
        """
        self.rows += 1
        self.free += request.prompt + request.said() - 1

    def reset_ratio(self) -> None:
        """An idle server forgets what it learned."""
        self.ratio = self._start

    def learn(self, requests: Iterable[Request]) -> None:
        """The estimate after a retraction, over the requests that stay."""
        kept = list(requests)
        said = sum(request.said() for request in kept)
        limit = sum(request.limit for request in kept)
        steps = RETRACT_DECODE_STEPS * len(kept)
        self.ratio = min((said + steps) / (limit + 1), 1.0)

    def future(self, requests: Iterable[Request]) -> float:
        """Tokens that ``requests`` are expected to need yet."""
        if not self.limited:
            return 0.0
        return self.ratio * sum(
            min(request.limit - request.said(), CLIP_MAX_NEW_TOKENS)
            for request in requests
        )


class Budget:
    """What one prefill may take.

    Attributes:
        total: tokens free after all expected future ones.
        current: tokens free now.
        inputs: prompt tokens that the forward may still start with.
        chunk: prompt tokens left of the chunk.
    """

    __slots__ = ("chunk", "current", "inputs", "total")

    def __init__(
        self, memory: Memory, reserved: float, chunk: int | None, inputs: int
    ) -> None:
        self.total = memory.free - reserved
        self.current = memory.free
        self.inputs = inputs
        self.chunk: float = math.inf if chunk is None else chunk

    @property
    def no_tokens(self) -> bool:
        return self.total <= 0 or self.current <= 0

    @property
    def spent(self) -> bool:
        """Whether the forward is full, though there is memory."""
        return not self.no_tokens and (self.inputs <= 0 or self.chunk <= 0)

    def fits(self, request: Request) -> bool:
        """Whether ``request`` fits with all the tokens it may say."""
        rest = min(max(request.limit - request.tokens, 0), CLIP_MAX_NEW_TOKENS)
        return request.to_prefill + rest + 1 < self.total

    def next_chunk(self, rest: int) -> int:
        """Tokens of a chunk in progress; it must go on, or it would hold its KV."""
        allowed = self.chunk
        if 0 < self.total < allowed:
            allowed = int(self.total)
        return int(min(rest, allowed))

    def take(self, tokens: int, request: Request, last: bool) -> None:
        """Reserve ``tokens`` of ``request`` and, with the last ones, its output."""
        self.current -= tokens + 1
        self.total -= tokens + 1
        if last:
            self.total -= min(request.limit, CLIP_MAX_NEW_TOKENS)
        self.inputs -= tokens
        self.chunk -= tokens
