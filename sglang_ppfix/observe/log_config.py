"""What a log says about the server: its arguments, its limits, its memory per stage."""

import re
from dataclasses import dataclass, field

#: ``server_args=ServerArgs(pp_size=8, ...)`` up to 0.5.18, a dict's repr since.
SERVER_ARGS = b"server_args="
#: Printed once per PP rank at the end of start-up.
LIMITS = b"max_total_num_tokens="
RETRACT = b"Retract requests."
WEIGHTS = b"Load weight end."
GRAPH_SIZES = b"Capture cuda graph bs"
#: A collective that never came back: NCCL's watchdog, SGLang's own.
HANG_MARKS = (b"Watchdog caught collective operation timeout", b"atchdog timeout")

_INTEGER_KEYS = (
    "tp_size",
    "pp_size",
    "dp_size",
    "pp_max_micro_batch_size",
    "pp_async_batch_depth",
    "max_running_requests",
    "chunked_prefill_size",
    "decode_log_interval",
    "page_size",
    "cuda_graph_max_bs",
)
_TEXT_KEYS = ("model_path", "speculative_algorithm", "disaggregation_mode")


@dataclass
class LogConfig:
    """What one server said when it started.

    Attributes:
        args: server arguments found, by SGLang's name; missing ones are absent, None
            means that SGLang printed ``None``.
        max_running_requests: effective limit of the rank (start-up line).
        kv_tokens: ``max_total_num_tokens``, size of the KV pool in tokens.
        weight_gb: PP rank -> GB that the stage's weights take.
        available_gb: PP rank -> GB free at the end of start-up.
        retracted: (PP rank, TP rank) -> requests sent back because the KV cache was
            full. Every rank says so.
        hang_lines: lines of a watchdog about a collective that never ended.
    """

    args: dict[str, int | str | bool | None] = field(default_factory=dict)
    max_running_requests: int | None = None
    kv_tokens: int | None = None
    chunked_prefill_size: int | None = None
    graph_max_bs: int | None = None
    weight_gb: dict[int, float] = field(default_factory=dict)
    available_gb: dict[int, float] = field(default_factory=dict)
    retracted: dict[tuple[int, int], int] = field(default_factory=dict)
    hang_lines: int = 0

    @property
    def retractions(self) -> int:
        """Requests sent back because the KV cache was full."""
        return max(self.retracted.values(), default=0)

    def read_line(self, line: bytes, pp_rank: int, tp_rank: int = 0) -> None:
        """Take in a line that holds one of this module's marks."""
        if LIMITS in line:
            self._read_limits(line, pp_rank)
        elif SERVER_ARGS in line:
            self.args.update(parse_server_args(line.decode("utf-8", "replace")))
        elif RETRACT in line:
            key = pp_rank, tp_rank
            number = retracted_requests(line) or 1
            self.retracted[key] = self.retracted.get(key, 0) + number
        elif WEIGHTS in line:
            found = re.search(rb"mem usage=([\d.]+) GB", line)
            if found:
                self.weight_gb[pp_rank] = float(found.group(1))
        elif GRAPH_SIZES in line:
            sizes = [int(n) for n in re.findall(rb"\d+", line.split(GRAPH_SIZES)[1])]
            self.graph_max_bs = max(sizes, default=None)
        else:
            self.hang_lines += 1

    def merge(self, other: "LogConfig") -> None:
        """Add what another node of the same server said."""
        self.args.update(other.args)
        self.weight_gb.update(other.weight_gb)
        self.available_gb.update(other.available_gb)
        self.max_running_requests = (
            self.max_running_requests or other.max_running_requests
        )
        self.kv_tokens = self.kv_tokens or other.kv_tokens
        self.chunked_prefill_size = (
            self.chunked_prefill_size or other.chunked_prefill_size
        )

    def _read_limits(self, line: bytes, pp_rank: int) -> None:
        found = dict(re.findall(rb"(\w+)=(-?[\d.]+)", line))
        self.kv_tokens = _integer(found.get(b"max_total_num_tokens"))
        self.max_running_requests = _integer(found.get(b"max_running_requests"))
        self.chunked_prefill_size = _integer(found.get(b"chunked_prefill_size"))
        free = found.get(b"available_gpu_mem") or found.get(b"available_cpu_mem")
        if free is not None:
            self.available_gb[pp_rank] = float(free)


def retracted_requests(line: bytes) -> int | None:
    """How many requests a line with ``RETRACT`` sends back, if it says so."""
    found = re.search(rb"#retracted_reqs: (\d+)", line)
    return int(found[1]) if found else None


def _integer(text: bytes | None) -> int | None:
    return int(text) if text is not None and text.lstrip(b"-").isdigit() else None


def parse_server_args(text: str) -> dict[str, int | str | bool | None]:
    """Arguments out of a ``server_args=`` line, whichever way it was printed."""
    found: dict[str, int | str | bool | None] = {}
    for key in _INTEGER_KEYS:
        match = re.search(rf"\b{key}'?\s*[=:]\s*(-?\d+|None)\b", text)
        if match:
            found[key] = None if match[1] == "None" else int(match[1])
    for key in _TEXT_KEYS:
        match = re.search(rf"\b{key}'?\s*[=:]\s*(?:'([^']*)'|None)", text)
        if match:
            found[key] = match[1]
    match = re.search(r"\bdisable_cuda_graph'?\s*[=:]\s*(True|False)", text)
    if match:
        found["disable_cuda_graph"] = match[1] == "True"
    return found
