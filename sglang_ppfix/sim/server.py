"""The settings of a simulated SGLang server."""

from dataclasses import dataclass

from sglang_ppfix.policy import derive_cap, stock_cap, target_slots

# GiB of a GPU's memory, and the chunk below that; SGLang 0.5.23, ``memory_hook.py``.
_CHUNKS = ((20, 2048), (60, 4096), (160, 8192))
_LARGEST_CHUNK = 16384


def default_chunk(memory: float) -> int:
    """Tokens of a chunk that SGLang chooses on a GPU of ``memory`` bytes."""
    for gib, chunk in _CHUNKS:
        if memory < gib * 2**30:
            return chunk
    return _LARGEST_CHUNK


@dataclass(frozen=True)
class Server:
    """What SGLang was started with.

    Attributes:
        pp_size: pipeline stages, ``P``.
        async_depth: ``--pp-async-batch-depth``.
        max_running_requests: rows, of the whole ring.
        cap: ``--pp-max-micro-batch-size``; None lets the policy derive it.
        target_slots: ``SGLANG_PPFIX_SLOTS``; None lets the rule choose.
        kv_tokens: size of the KV pool in tokens; None means more than enough.
        chunked_prefill_size: tokens of a chunk; None switches chunks off. The default
            is SGLang's for GPUs of 60 to 160 GiB (see :func:`default_chunk`).
        max_prefill_tokens: prompt tokens a forward may start with.
        conservativeness: ``--schedule-conservativeness``.
        ideal_loop: no CPU and no stream holds data back (the law's assumptions).
    """

    pp_size: int
    async_depth: int = 0
    max_running_requests: int = 64
    cap: int | None = None
    target_slots: int | None = None
    kv_tokens: int | None = None
    chunked_prefill_size: int | None = 8192
    max_prefill_tokens: int = 16384
    conservativeness: float = 1.0
    ideal_loop: bool = False

    def __post_init__(self) -> None:
        lowest = {
            "pp_size": (self.pp_size, 2),
            "async_depth": (self.async_depth, 0),
            "max_running_requests": (self.max_running_requests, 1),
            "cap": (self.cap, 1),
            "target_slots": (self.target_slots, 1),
            "kv_tokens": (self.kv_tokens, 2),
            "chunked_prefill_size": (self.chunked_prefill_size, 1),
            "max_prefill_tokens": (self.max_prefill_tokens, 1),
        }
        for name, (value, minimum) in lowest.items():
            if value is not None and value < minimum:
                raise ValueError(f"{name}={value}: allowed is {minimum} or more")

    @property
    def slots(self) -> int:
        """Length of the ring, ``L``."""
        return self.pp_size + self.async_depth

    @property
    def filled_slots(self) -> int:
        """Target slots ``S`` of balanced filling."""
        return target_slots(self.pp_size, self.async_depth, self.target_slots)

    @property
    def stock_cap(self) -> int:
        """The cap of stock."""
        return self.cap or stock_cap(self.max_running_requests, self.pp_size)

    @property
    def derived_cap(self) -> int:
        """The cap of the plugin."""
        return self.cap or derive_cap(self.max_running_requests, self.filled_slots)
