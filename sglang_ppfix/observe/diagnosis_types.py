"""The words of a diagnosis: configuration, operating points, findings, report."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

SCHEMA_VERSION = 1


class Verdict(str, Enum):
    """What holds the pipeline back; the words are permanent."""

    HEALTHY = "healthy"
    SLOTS_NOT_FILLED = "slots-not-filled"
    CAP_TOO_SMALL = "cap-too-small"
    MEMORY_LIMITED = "memory-limited"
    CLIENT_LIMITED = "client-limited"
    UNEVEN_LAYERS = "uneven-layers"
    ASYNC_DEPTH = "async-depth"
    PREFILL_STRETCHED = "prefill-stretched"
    RANKS_DIVERGED = "ranks-diverged"
    NO_PIPELINE = "no-pipeline"
    NOT_ENOUGH_DATA = "not-enough-data"


class DiagnoseError(ValueError):
    """Input that cannot be diagnosed; the text is one line for the user."""


@dataclass
class Configuration:
    """How the server is set up; None means not known.

    Attributes:
        pp_size, async_depth: SGLang's; a ring has ``pp_size + async_depth`` slots.
        cap: effective ``pp_max_micro_batch_size``.
        cap_given: whether the user set the cap; None when that is not known.
        max_running_requests: effective, of one data-parallel rank.
        layers: layers of the model; ``partition``: layers per stage.
        experts, top_k: routed experts per layer and experts per token.
        origin: field -> where its value comes from.
    """

    pp_size: int | None = None
    async_depth: int | None = None
    cap: int | None = None
    cap_given: bool | None = None
    max_running_requests: int | None = None
    chunked_prefill_size: int | None = None
    kv_tokens: int | None = None
    decode_log_interval: int = 40
    graph_max_bs: int | None = None
    tp_size: int | None = None
    dp_size: int | None = None
    layers: int | None = None
    partition: tuple[int, ...] | None = None
    experts: int | None = None
    top_k: int | None = None
    model: str | None = None
    release: str | None = None
    speculative: str | None = None
    disaggregation: str | None = None
    origin: dict[str, str] = field(default_factory=dict)

    @property
    def loop_size(self) -> int | None:
        """Slots of the ring, ``L``."""
        if self.pp_size is None:
            return None
        return self.pp_size + (self.async_depth or 0)


@dataclass(frozen=True)
class Measured:
    """A value with its range."""

    value: float
    low: float
    high: float

    @classmethod
    def exact(cls, value: float) -> "Measured":
        """A value without error."""
        return cls(value, value, value)


@dataclass
class OperatingPoint:
    """One load level: how requests lay in the slots, and what came out.

    Attributes:
        in_flight: requests in flight; None when nothing tells. ``source``: how known.
        confidence: of ``in_flight``, 0 to 1.
        mean_micro_batch: mean size of the micro-batches of all slots.
        logged: ``#running-req`` as printed (one slot): median, lowest, highest.
        filled: slots that hold requests.
        largest: mean over laps of the largest micro-batch.
        occupancy: size of every filled slot, largest first, when known.
        tok_s: decode tokens per second of the server (of one data-parallel rank).
        accepted: tokens per request and decode step (1 without speculation).
        stretch: share of the time that prefills add to the laps.
        seconds, lines: busy time and decode lines behind this point.
        share: of the log's busy time.
    """

    in_flight: Measured | None = None
    source: str = ""
    confidence: float = 0.0
    mean_micro_batch: Measured | None = None
    logged: Measured | None = None
    filled: Measured | None = None
    largest: Measured | None = None
    occupancy: tuple[int, ...] | None = None
    tok_s: float | None = None
    accepted: float = 1.0
    queue: float | None = None
    queued_share: float | None = None
    usage: float | None = None
    graph_share: float | None = None
    stretch: float | None = None
    prefills_s: float | None = None
    seconds: float = 0.0
    lines: int = 0
    share: float = 1.0
    clients: int | None = None


@dataclass(frozen=True)
class Moment:
    """A piece of a log, for a picture: ``seconds`` of work that end at ``second``.

    The other fields as in ``OperatingPoint``.
    """

    second: float
    seconds: float
    in_flight: float | None
    mean_micro_batch: float
    logged: float
    tok_s: float
    queue: float
    usage: float


@dataclass
class Prediction:
    """A predicted throughput, in tokens per second.

    Attributes:
        what: the change, in words.
        low, high: range; the model is ``docs/diagnose.md``'s.
        best: what to expect most.
        base: what it is compared with.
        model: how it was computed, in words.
    """

    what: str
    low: float
    best: float
    high: float
    base: float
    model: str

    @property
    def gain(self) -> float:
        """Expected ratio to ``base``."""
        return self.best / self.base if self.base > 0 else 1.0


@dataclass
class Fix:
    """What to set: an exact flag or variable, and why."""

    set: str
    why: str


@dataclass
class Finding:
    """One thing that holds, with what speaks for it."""

    verdict: Verdict
    confidence: float
    title: str
    evidence: list[str] = field(default_factory=list)
    predictions: list[Prediction] = field(default_factory=list)
    fixes: list[Fix] = field(default_factory=list)
    #: How much it costs, for choosing the main one: 0.7 means "70 % more possible".
    weight: float = 0.0
    #: Nothing else can be judged before this is gone.
    binding: bool = False


@dataclass
class Report:
    """The diagnosis of one pipeline."""

    verdict: Verdict
    confidence: float
    summary: str
    configuration: Configuration
    points: list[OperatingPoint] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    ruled_out: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    input: dict[str, Any] = field(default_factory=dict)
    others: list[dict[str, Any]] = field(default_factory=list)
    main: OperatingPoint | None = None
    timeline: list[Moment] = field(default_factory=list)
