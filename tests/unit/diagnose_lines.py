"""Batch lines exactly as each SGLang release prints them, for the log tests.

Written from the f-strings of the wheels 0.5.4.post3 to 0.5.23 (``report_decode_stats``
and ``report_prefill_stats``, ``configure_logger``), not from the parser.
"""

from dataclasses import dataclass
from datetime import datetime, timezone

#: Releases whose lines differ from the one before, as comparable tuples.
RELEASES = (
    "0.5.3",
    "0.5.4.post3",
    "0.5.6.post2",
    "0.5.8.post1",
    "0.5.9",
    "0.5.10.post1",
    "0.5.11",
    "0.5.12.post1",
    "0.5.15.post1",
    "0.5.16",
    "0.5.19",
    "0.5.21",
    "0.5.23",
)


@dataclass(frozen=True)
class Shape:
    """What of a line depends on release and configuration.

    Attributes:
        release: SGLang release.
        tp: tensor-parallel size; a tag appears above 1.
        dp: data-parallel rank, or None.
        milliseconds: SGLANG_LOG_MS, from 0.5.6.post2.
        kv: ``plain``, ``swa`` or ``mamba``: which pools the model has.
        timer: SGLANG_ENABLE_METRICS_DEVICE_TIMER, from 0.5.11.
        spec: accept length of speculative decoding, or None.
        disaggregation: ``prefill``, ``decode`` or None.
        iteration: SGLANG_LOG_FORWARD_ITERS.
        mfu: --enable-mfu-metrics, from 0.5.10.
    """

    release: str = "0.5.23"
    tp: int = 1
    dp: int | None = None
    milliseconds: bool = False
    kv: str = "plain"
    timer: bool = False
    spec: float | None = None
    disaggregation: str | None = None
    iteration: bool = False
    mfu: bool = False

    @property
    def version(self) -> tuple[int, ...]:
        """Release as numbers, without ``.post``."""
        return tuple(int(part) for part in self.release.split(".")[:3])


def head(shape: Shape, second: float, rank: int | None, cp: bool = False) -> str:
    """``[2026-05-01 10:00:00 PP3] ``; without a rank, the main process's."""
    moment = datetime.fromtimestamp(second, tz=timezone.utc)
    text = moment.strftime("%Y-%m-%d %H:%M:%S")
    if shape.milliseconds and shape.version >= (0, 5, 6):
        text += f".{moment.microsecond // 1000:03d}"
    if rank is None:
        return f"[{text}] "
    tags = {"PP": f" PP{rank}", "DP": "", "TP": "", "EP": "", "CP": ""}
    if shape.dp is not None:
        tags["DP"] = f" DP{shape.dp}"
    if shape.tp > 1:
        tags["TP"] = " TP0"
        tags["EP"] = " EP0"
    if cp and shape.version >= (0, 5, 9):
        tags["CP"] = " ATTN_CP0 MOE_DP0"
    order = ("DP", "PP", "CP", "TP", "EP")
    if shape.version < (0, 5, 5):
        order = ("DP", "TP", "EP", "PP")
    return f"[{text}{''.join(tags[name] for name in order)}] "


def decode(
    shape: Shape,
    running: int,
    held: int,
    usage: float,
    tok_s: float,
    queue: int,
    graph: bool = True,
    occupancy: float | None = None,
    count: int = 40,
) -> str:
    """Message of a decode line."""
    version = shape.version
    first = ". " if version < (0, 5, 4) else ", "
    iteration = f" [{count}]" if shape.iteration else ""
    text = f"Decode batch{iteration}{first}#running-req: {running}, "
    text += {
        "plain": f"#token: {held}, token usage: {usage:.2f}, ",
        "swa": f"#full token: {held}, full token usage: {usage:.2f}, "
        f"#swa token: {held // 4}, swa token usage: {usage / 2:.2f}, ",
        "mamba": f"#full token: {held}, full token usage: {usage:.2f}, "
        f"mamba num: {running}, mamba usage: {usage / 3:.2f}, ",
    }[shape.kv]
    if shape.spec is not None:
        text += f"accept len: {shape.spec:.2f}, accept rate: 0.40, "
        if version >= (0, 5, 16):
            text += "cap len: 3.00, "
    if shape.disaggregation == "decode":
        text += "pre-allocated usage: 0.00, #prealloc-req: 0, #transfer-req: 0, "
        text += "#host-receive-req: 0, " if version >= (0, 5, 21) else ""
        text += "#retracted-req: 0, "
    text += f"cuda graph: {graph}, gen throughput (token/s): {tok_s:.2f}, "
    text += f"#queue-req: {queue}"
    if version < (0, 5, 9):
        return text + ", "
    if shape.mfu and version >= (0, 5, 10):
        text += ", est. decode TFLOPS/s (per GPU): 1.23, "
        text += "est. read BW (GB/s per GPU): 812.00, "
        text += "est. write BW (GB/s per GPU): 0.52"
    return text + _occupancy(shape, occupancy)


def prefill(
    shape: Shape,
    new_seqs: int,
    new_tokens: int,
    usage: float,
    running: int,
    queue: int,
    pending: int = 0,
    cached: int = 0,
    tok_s: float = 100.0,
    occupancy: float | None = None,
    count: int = 40,
) -> str:
    """Message of a prefill line."""
    version = shape.version
    first = ". " if version < (0, 5, 4) else ", "
    iteration = f" [{count}]" if shape.iteration else ""
    text = f"Prefill batch{iteration}{first}#new-seq: {new_seqs}, "
    text += f"#new-token: {new_tokens}, #cached-token: {cached}, "
    text += {
        "plain": f"token usage: {usage:.2f}, ",
        "swa": f"full token usage: {usage:.2f}, swa token usage: {usage / 2:.2f}, ",
        "mamba": f"full token usage: {usage:.2f}, mamba usage: {usage / 3:.2f}, ",
    }[shape.kv]
    text += f"#running-req: {running}, #queue-req: {queue}, "
    if version >= (0, 5, 11):
        text += f"#pending-token: {pending}, "
    in_prefill = shape.disaggregation == "prefill"
    if in_prefill:
        name = "#bootstrap-req" if version >= (0, 5, 12) else "#prealloc-req"
        text += f"{name}: 0, #inflight-req: 0, "
        text += "#optimistic-req: 0, " if version >= (0, 5, 16) else ""
    if version < (0, 5, 9):
        return text + f"input throughput (token/s): {tok_s:.2f}, " * in_prefill
    throughput = f"input throughput (token/s): {tok_s:.2f}"
    if version < (0, 5, 10):
        return text + f"{throughput}, cuda graph: False"
    text += f"cuda graph: False, {throughput}"
    if shape.mfu:
        text += ", est. prefill TFLOPS/s (per GPU): 1.23"
    return text + _occupancy(shape, occupancy)


def _occupancy(shape: Shape, occupancy: float | None) -> str:
    if not shape.timer or shape.version < (0, 5, 11):
        return ""
    share = float("nan") if occupancy is None else 100.0 * occupancy
    text = f", fwd occupancy: {share:.2f}%"
    if shape.version >= (0, 5, 21):
        text += f", fwd+idle occupancy: {share:.2f}%"
    return text


def server_args(shape: Shape, **known: object) -> str:
    """Message of the line with the server's arguments."""
    shown = {"model_path": "some/model", "tp_size": shape.tp, **known}
    if shape.version < (0, 5, 19):
        inside = ", ".join(f"{key}={value!r}" for key, value in shown.items())
        return f"server_args=ServerArgs({inside})"
    return f"server_args={shown!r}"


def limits(max_running: int, kv_tokens: int, chunk: int = 8192) -> str:
    """Message of the last line of start-up, printed by every PP rank."""
    return (
        f"max_total_num_tokens={kv_tokens}, chunked_prefill_size={chunk}, "
        f"max_prefill_tokens=16384, max_running_requests={max_running}, "
        "context_len=4096, available_gpu_mem=11.21 GB"
    )
