"""Reads what every rank's device did: the lab's own, independent count."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Forward:
    """One forward on one stage's device. Times are seconds on CLOCK_MONOTONIC.

    Attributes:
        rank: the stage.
        slot: SGLang's ``mb_id``.
        mode: ``decode``, ``prefill`` or ``mixed``.
        tokens: tokens that went through the model.
        launched: when the CPU launched it.
        start: when the device started it.
        end: when the device finished it.
        rids: requests of the micro-batch.
    """

    rank: int
    slot: int
    mode: str
    tokens: int
    launched: float
    start: float
    end: float
    rids: tuple[str, ...]

    @property
    def requests(self) -> int:
        """Size of the micro-batch, ``b``."""
        return len(self.rids)


def read_traces(
    folder: Path, begin: float = 0.0, end: float = float("inf")
) -> list[list[Forward]]:
    """Forwards of every rank, in order of launch.

    Args:
        folder: a server's ``trace_dir``.
        begin: leave out what started earlier.
        end: leave out what started later.

    Returns:
        One list a rank.
    """
    ranks = sorted(folder.glob("rank*.jsonl"), key=lambda path: int(path.stem[4:]))
    return [_read_rank(path, begin, end) for path in ranks]


def _read_rank(path: Path, begin: float, end: float) -> list[Forward]:
    rank = int(path.stem[4:])
    forwards = []
    with path.open() as lines:
        for line in lines:
            if not line.endswith("\n"):
                break  # the server is writing it now
            slot, mode, tokens, launched, start, finish, rids = json.loads(line)
            if begin <= start <= end:
                forwards.append(
                    Forward(
                        rank, slot, mode, tokens, launched, start, finish, tuple(rids)
                    )
                )
    return forwards


def slots_filled(forwards: Iterable[Forward]) -> Counter[int]:
    """Decode forwards of each slot."""
    return Counter(forward.slot for forward in forwards if forward.mode == "decode")


def largest_micro_batch(forwards: Iterable[Forward]) -> int:
    """Most requests that one decode forward held; 0 if there was none."""
    sizes = (forward.requests for forward in forwards if forward.mode == "decode")
    return max(sizes, default=0)


def bubble_share(forwards: Sequence[Forward]) -> float:
    """Part of the time from the first start to the last end without a forward."""
    if not forwards:
        return 0.0
    span = max(f.end for f in forwards) - min(f.start for f in forwards)
    busy = sum(f.end - f.start for f in forwards)
    return 1 - busy / span if span > 0 else 0.0


def token_times(last_rank: Iterable[Forward]) -> dict[str, list[float]]:
    """When the last stage finished each forward of each request, in order.

    With one forward a token this is when the tokens existed; the forwards of a prompt
    in chunks count as well.
    """
    times: dict[str, list[float]] = defaultdict(list)
    for forward in last_rank:
        for rid in forward.rids:
            times[rid].append(forward.end)
    return times
