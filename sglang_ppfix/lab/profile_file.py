"""Stage times as users write them: a text, or a profile file. Pure Python."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .stage_time import (
    Curve,
    StageProfile,
    StageTime,
    StageTimeError,
    default_prefill,
    parse_affine,
)


def stage_profile(
    decode: str,
    pp_size: int,
    prefill: str | None = None,
    hop_ms: float | None = None,
    head_ms: float = 0.0,
    factors: Sequence[float] | None = None,
) -> StageProfile:
    """Build the stages from what the user wrote.

    Args:
        decode: an affine text, or the path of a profile file.
        pp_size: number of stages.
        prefill: affine text over prompt tokens (``n``); replaces the profile's own.
        hop_ms: latency between stages; replaces the profile's own.
        head_ms: added to every forward of the last stage (the ``lm_head``).
        factors: one factor per stage, for uneven layers.

    Raises:
        StageTimeError: bad text, unreadable file, or a wrong number of stages.
    """
    path = Path(decode)
    if path.suffix == ".json" or path.is_file():
        profile = read_profile(path, pp_size)
    else:
        curve = parse_affine(decode, "--stage-ms", "b")
        stage = StageTime(curve, default_prefill(curve))
        profile = StageProfile(f"t(b) = {decode} ms", (stage,) * pp_size)
    stages = list(profile.stages)
    if prefill is not None:
        curve = parse_affine(prefill, "--prefill-ms", "n")
        stages = [StageTime(stage.decode, curve) for stage in stages]
    if factors is not None:
        if len(factors) != pp_size or min(factors) <= 0:
            raise StageTimeError(
                f"--stage-factors {list(factors)}: need {pp_size} numbers above 0, "
                "one per stage"
            )
        stages = [
            StageTime(stage.decode.scaled(f), stage.prefill.scaled(f))
            for stage, f in zip(stages, factors, strict=True)
        ]
    last = stages[-1]
    stages[-1] = StageTime(
        last.decode.scaled(1, head_ms), last.prefill.scaled(1, head_ms)
    )
    hop = profile.hop_ms if hop_ms is None else hop_ms
    return StageProfile(profile.name, tuple(stages), hop)


def read_profile(path: Path, pp_size: int) -> StageProfile:
    """Read a profile file (``docs/lab.md`` describes it).

    Raises:
        StageTimeError: unreadable, not JSON, or not a profile for ``pp_size`` stages.
    """
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise StageTimeError(f"--stage-ms {str(path)!r}: {error.strerror}") from None
    except ValueError as error:
        raise StageTimeError(f"--stage-ms {str(path)!r}: not JSON: {error}") from None
    return profile_from_json(content, pp_size, f"--stage-ms {str(path)!r}")


def profile_from_json(content: Any, pp_size: int, setting: str) -> StageProfile:
    """Turn the content of a profile file into a profile.

    Args:
        content: ``{"name", "hop_ms", "stages": [{"decode", "prefill"}, ...]}``; one
            stage stands for all.
        pp_size: number of stages wanted.
        setting: where the content comes from, for the error.
    """
    if not isinstance(content, Mapping) or not isinstance(content.get("stages"), list):
        raise StageTimeError(f'{setting}: needs a list "stages"')
    entries = content["stages"]
    if len(entries) == 1:
        entries = entries * pp_size
    if len(entries) != pp_size:
        raise StageTimeError(
            f"{setting}: has {len(entries)} stages, the pipeline has {pp_size} "
            "(one stage stands for all)"
        )
    stages = []
    for number, entry in enumerate(entries):
        where = f"{setting}: stage {number}"
        if not isinstance(entry, Mapping) or "decode" not in entry:
            raise StageTimeError(f'{where}: needs "decode"')
        decode = _curve(entry["decode"], f"{where} decode", "b")
        prefill = entry.get("prefill")
        stages.append(
            StageTime(
                decode,
                default_prefill(decode)
                if prefill is None
                else _curve(prefill, f"{where} prefill", "n"),
            )
        )
    hop = content.get("hop_ms", 0.0)
    if not isinstance(hop, int | float) or hop < 0:
        raise StageTimeError(f"{setting}: hop_ms {hop!r}: need a number, 0 or more")
    return StageProfile(str(content.get("name", setting)), tuple(stages), float(hop))


def _curve(value: Any, where: str, variable: str) -> Curve:
    """A text, or a list of ``[count, ms]`` pairs with rising counts."""
    if isinstance(value, str):
        return parse_affine(value, where, variable)
    problem = f"{where}: need a text or [[count, ms], ...] with rising counts"
    if not isinstance(value, list) or not value:
        raise StageTimeError(problem)
    points: list[tuple[float, float]] = []
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2:
            raise StageTimeError(problem)
        if not all(isinstance(number, int | float) for number in pair):
            raise StageTimeError(problem)
        if points and pair[0] <= points[-1][0]:
            raise StageTimeError(problem)
        if pair[1] < 0:
            raise StageTimeError(f"{where}: {pair[1]} ms is below 0")
        points.append((float(pair[0]), float(pair[1])))
    return Curve(tuple(points))
