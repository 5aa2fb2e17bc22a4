"""What a lab server is: one dataclass, checked when it is made."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .errors import LabError
from .stage_time import StageProfile


@dataclass(frozen=True)
class LabConfig:
    """One server of the lab.

    Attributes:
        profile: stage times; its number of stages is ``pp_size``.
        max_running_requests: SGLang's setting of that name.
        async_depth: SGLang's ``pp_async_batch_depth``.
        cap: SGLang's ``pp_max_micro_batch_size``; ``None`` lets SGLang derive it.
        chunked_prefill_size: tokens of a chunk; ``None`` leaves SGLang's default.
        kv_tokens: size of the KV pool in tokens (``--max-total-tokens``).
        port: HTTP port; ``None`` takes a free one.
        env: environment of the server, on top of this process's own.
        extra_args: further arguments of ``sglang.launch_server``.
        trace: write every forward of every rank's device to a file.
        start_timeout_s: how long the server may take to answer.
    """

    profile: StageProfile
    max_running_requests: int = 32
    async_depth: int = 0
    cap: int | None = None
    chunked_prefill_size: int | None = None
    kv_tokens: int = 16384
    port: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    extra_args: tuple[str, ...] = ()
    trace: bool = True
    start_timeout_s: float = 600.0

    def __post_init__(self) -> None:
        """Refuse what SGLang would refuse later, in one line.

        Raises:
            LabError: a value is out of range.
        """
        lowest = {
            "pp_size": (self.pp_size, 2),
            "max_running_requests": (self.max_running_requests, 1),
            "async_depth": (self.async_depth, 0),
            "cap": (self.cap, 1),
            "chunked_prefill_size": (self.chunked_prefill_size, 1),
            "kv_tokens": (self.kv_tokens, 16),
        }
        for name, (value, minimum) in lowest.items():
            if value is not None and value < minimum:
                raise LabError(f"{name} {value}: must be {minimum} or more")

    @property
    def pp_size(self) -> int:
        """Number of stages, ``P``."""
        return len(self.profile.stages)

    @property
    def slots(self) -> int:
        """Number of slots of the ring, ``L``."""
        return self.pp_size + self.async_depth
