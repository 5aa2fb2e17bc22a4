"""What a scheduler process of the lab knows: its device, stage time, slot and trace."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .device import Device, Kernel
from .profile_file import profile_from_json
from .stage_time import StageProfile, StageTime


@dataclass(frozen=True)
class DeviceFile:
    """What the lab tells a server's processes, through a file.

    Attributes:
        profile: stage times of all stages.
        trace_dir: folder for one trace a rank, or ``None``.
    """

    profile: StageProfile
    trace_dir: str | None = None

    def write(self, path: Path) -> None:
        """Write the file that :meth:`read` reads; ranks that run take up the new times.

        It is put in place in one step: a rank may read at any moment.
        """
        content = {"profile": self.profile.to_json(), "trace_dir": self.trace_dir}
        new = path.with_suffix(".new")
        new.write_text(json.dumps(content))
        os.replace(new, path)

    @classmethod
    def read(cls, path: Path) -> "DeviceFile":
        """Read what :meth:`write` wrote."""
        content = json.loads(path.read_text())
        stages = len(content["profile"]["stages"])
        profile = profile_from_json(content["profile"], stages, str(path))
        return cls(profile, content["trace_dir"])


@dataclass
class Rank:
    """State of one PP rank."""

    pp_rank: int
    is_last: bool
    stage: StageTime
    hop_s: float
    trace_fd: int | None = None
    follow: Callable[[], StageProfile | None] = lambda: None
    device: Device = field(default_factory=Device)
    req_to_token: Any = None
    slot: int = -1
    rids: list[str] = field(default_factory=list)
    decoding: int = 0

    def launch_kernel(
        self, requests: int, tokens: int, decode: bool, mixed: bool
    ) -> Kernel:
        """Book one forward on the device and write it to the trace."""
        profile = self.follow()
        if profile is not None:
            self.stage = profile.stages[self.pp_rank]
            self.hop_s = profile.hop_ms / 1e3
        if decode:
            mode, prefill_tokens, decode_requests = "decode", 0, requests
        else:
            decode_requests = self.decoding if mixed else 0
            mode = "mixed" if decode_requests else "prefill"
            prefill_tokens = tokens - decode_requests
        seconds = self.stage.milliseconds(decode_requests, prefill_tokens) / 1e3
        kernel = self.device.launch(seconds)
        if self.trace_fd is not None:
            line = json.dumps(
                [self.slot, mode, tokens, *(round(t, 6) for t in kernel), self.rids]
            )
            # One write a forward: nothing is lost when the server is killed.
            os.write(self.trace_fd, line.encode() + b"\n")
        return kernel


_ranks: list[Rank] = []


def follower(path: Path) -> Callable[[], StageProfile | None]:
    """Gives the profile in ``path`` whenever the file was put in place anew."""
    seen = path.stat().st_mtime_ns

    def follow() -> StageProfile | None:
        nonlocal seen
        now = path.stat().st_mtime_ns
        if now == seen:
            return None
        seen = now
        return DeviceFile.read(path).profile

    return follow


def start_rank(path: Path, pp_rank: int) -> Rank:
    """Make this process the device of stage ``pp_rank``, as ``path`` says."""
    follow = follower(path)
    device_file = DeviceFile.read(path)
    trace_fd = None
    if device_file.trace_dir is not None:
        trace = Path(device_file.trace_dir) / f"rank{pp_rank}.jsonl"
        trace_fd = os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    profile = device_file.profile
    rank = Rank(
        pp_rank=pp_rank,
        is_last=pp_rank == len(profile.stages) - 1,
        stage=profile.stages[pp_rank],
        hop_s=profile.hop_ms / 1e3,
        trace_fd=trace_fd,
        follow=follow,
    )
    _ranks[:] = [rank]
    return rank


def current_rank() -> Rank:
    """This process's rank.

    Raises:
        RuntimeError: the model runs in a server that the lab did not start.
    """
    if not _ranks:
        raise RuntimeError("toy model: not started by the lab (SGLANG_PPFIX_LAB)")
    return _ranks[0]
