"""One configuration out of hints, a live server, the log's own words and its tags."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from .diagnosis_layers import model_facts
from .diagnosis_types import Configuration, DiagnoseError, Measured, OperatingPoint
from .log_config import LogConfig
from .log_load import fill_slots


@dataclass(frozen=True)
class Hints:
    """What the user says about the server; it wins over everything else.

    Attributes:
        clients: requests that the load keeps in flight.
        layers: ``(61,)`` for the model's layers, or layers per stage.
        points: clients -> tokens per second, measured by the user's client.
    """

    clients: int | None = None
    pp_size: int | None = None
    async_depth: int | None = None
    max_running_requests: int | None = None
    cap: int | None = None
    layers: tuple[int, ...] = ()
    model: str | None = None
    release: str | None = None
    points: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse impossible hints.

        Raises:
            DiagnoseError: one line naming the hint, its value and what is allowed.
        """
        lowest = {
            "--clients": (self.clients, 1),
            "--pp-size": (self.pp_size, 1),
            "--async-depth": (self.async_depth, 0),
            "--max-running-requests": (self.max_running_requests, 1),
            "--cap": (self.cap, 1),
            "--layers": (min(self.layers, default=None), 1),
        }
        for name, (value, least) in lowest.items():
            if value is not None and value < least:
                raise DiagnoseError(f"{name} {value}: must be {least} or more")
        for clients, rate in self.points.items():
            if clients < 1 or not 0.0 < rate < 1e9:
                raise DiagnoseError(
                    f"--point {clients}={rate:g}: must be CLIENTS=TOK_S, both above 0"
                )
        stages = len(self.layers)
        if stages > 1 and self.pp_size is not None and stages != self.pp_size:
            raise DiagnoseError(
                f"--layers names {stages} stages, --pp-size is {self.pp_size}"
            )


def build(
    hints: Hints,
    log: LogConfig | None,
    live: Mapping[str, object],
    pp_ranks: tuple[int, ...],
    untagged: bool,
) -> Configuration:
    """Configuration of one pipeline.

    Args:
        hints: from the user.
        log: from the log, if any.
        live: fields by SGLang's names, from a live server; empty without.
        pp_ranks: PP ranks seen in the log.
        untagged: lines have SGLang's own head and no PP tag: that means one stage.
    """
    config = Configuration()
    said = log.args if log is not None else {}
    _put(config, "pp_size", ("--pp-size", hints.pp_size),
         ("server", live.get("pp_size")), ("log: server_args", said.get("pp_size")),
         ("log: PP tags", max(pp_ranks) + 1 if len(pp_ranks) > 1 else None),
         ("log: no PP tag", 1 if untagged else None))  # fmt: skip
    if config.pp_size is None and len(hints.layers) > 1:
        config.pp_size, config.origin["pp_size"] = len(hints.layers), "--layers"
    _put(config, "async_depth", ("--async-depth", hints.async_depth),
         ("server", live.get("pp_async_batch_depth")),
         ("log: server_args", said.get("pp_async_batch_depth")))  # fmt: skip
    _put(config, "max_running_requests",
         ("--max-running-requests", hints.max_running_requests),
         ("server", live.get("effective_max_running_requests_per_dp")),
         ("log: start-up", log.max_running_requests if log is not None else None),
         ("server", live.get("max_running_requests")),
         ("log: server_args", said.get("max_running_requests")))  # fmt: skip
    _cap(config, hints, said, live)
    _put(config, "chunked_prefill_size",
         ("server", live.get("chunked_prefill_size")),
         ("log: start-up", log.chunked_prefill_size if log is not None else None),
         ("log: server_args", said.get("chunked_prefill_size")))  # fmt: skip
    _put(config, "kv_tokens", ("server", live.get("max_total_num_tokens")),
         ("log: start-up", log.kv_tokens if log is not None else None))  # fmt: skip
    _put(config, "decode_log_interval", ("server", live.get("decode_log_interval")),
         ("log: server_args", said.get("decode_log_interval")))  # fmt: skip
    _put(config, "graph_max_bs", ("server", live.get("cuda_graph_max_bs")),
         ("log: start-up", log.graph_max_bs if log is not None else None),
         ("log: server_args", said.get("cuda_graph_max_bs")))  # fmt: skip
    for name in ("tp_size", "dp_size"):
        _put(config, name, ("server", live.get(name)),
             ("log: server_args", said.get(name)))  # fmt: skip
    for name, key in (
        ("model", "model_path"),
        ("speculative", "speculative_algorithm"),
        ("disaggregation", "disaggregation_mode"),
        ("release", "version"),
    ):
        hint = getattr(hints, name, None)
        for origin, value in (
            (f"--{name}", hint),
            ("server", live.get(key)),
            ("log: server_args", said.get(key)),
        ):
            if isinstance(value, str) and value and value != "null":
                setattr(config, name, value)
                config.origin[name] = origin
                break
    _model(config, hints)
    return config


def _put(config: Configuration, name: str, *choices: tuple[str, object]) -> None:
    for origin, value in choices:
        if isinstance(value, int) and not isinstance(value, bool):
            setattr(config, name, value)
            config.origin[name] = origin
            return


def _cap(
    config: Configuration,
    hints: Hints,
    said: Mapping[str, object],
    live: Mapping[str, object],
) -> None:
    """The effective cap: given, read from the server, or SGLang's formula."""
    key = "pp_max_micro_batch_size"
    _put(config, "cap", ("--cap", hints.cap), ("server", live.get(key)),
         ("log: server_args", said.get(key) or None))  # fmt: skip
    rows, pp_size = config.max_running_requests, config.pp_size
    derived = max(rows // pp_size, 1) if rows and pp_size else None
    if config.cap is not None:
        # A server answers with the cap in use, whoever set it.
        if config.origin["cap"] != "server":
            config.cap_given = True
        elif derived is not None:
            config.cap_given = config.cap != derived
        return
    if derived is not None:
        config.cap = derived
        config.origin["cap"] = "SGLang's formula: max_running_requests // pp_size"
        config.cap_given = False


def _model(config: Configuration, hints: Hints) -> None:
    layers, experts, top_k, origin = model_facts(config.model)
    config.layers, config.experts, config.top_k = layers, experts, top_k
    for name in ("layers", "experts", "top_k"):
        if getattr(config, name) is not None:
            config.origin[name] = origin
    if len(hints.layers) > 1:
        config.partition, config.layers = hints.layers, sum(hints.layers)
        config.origin["partition"] = config.origin["layers"] = "--layers"
    elif hints.layers:
        config.layers, config.origin["layers"] = hints.layers[0], "--layers"


def given_points(config: Configuration, hints: Hints) -> list[OperatingPoint]:
    """Operating points that the user measured, slots as stock fills them in a burst."""
    return [
        given_point(config, clients, rate)
        for clients, rate in sorted(hints.points.items())
    ]


def given_point(
    config: Configuration,
    clients: int,
    tok_s: float | None,
    seen: Sequence[int] = (),
) -> OperatingPoint:
    """One operating point that somebody reports.

    Args:
        config: of the server.
        clients: requests kept in flight.
        tok_s: throughput, if reported.
        seen: running requests as log or ``/v1/loads`` showed them, of one slot each
            time. Without them the slots are assumed to fill up to the cap, one after
            the other, as stock fills them in a burst.
    """
    rows, cap = config.max_running_requests, config.cap
    number = min(clients, rows) if rows else clients
    point = OperatingPoint(
        in_flight=Measured.exact(number),
        source="the number of clients given; slots as SGLang fills them in a burst",
        confidence=0.65,
        tok_s=tok_s,
        clients=clients,
        queue=float(clients - number),
        queued_share=1.0 if clients > number else 0.0,
    )
    if seen:
        point.source = "the number of clients given; slots as they were seen"
        mean = fmean(seen)
        point.logged = Measured(mean, min(seen), max(seen))
        point.mean_micro_batch = Measured(mean, 0.8 * mean, 1.2 * mean)
        fill_slots(point, dict(Counter(seen)), config.loop_size)
    elif number == 1:
        point.occupancy = (1,)
    elif cap is not None and config.pp_size is not None:
        loop = config.loop_size or config.pp_size
        places = min(number, cap * loop)
        full, rest = divmod(places, cap)
        point.occupancy = (cap,) * full + ((rest,) if rest else ())
        point.in_flight = Measured.exact(places)
    if point.occupancy is not None:
        point.filled = Measured.exact(len(point.occupancy))
        point.largest = Measured.exact(max(point.occupancy))
    return point
