"""How long one stage needs: ``t(b)`` of decode and of prefill. Pure Python.

A text (``"40"``, ``"20+10b"``) or a profile file becomes a :class:`StageProfile`.
All times are milliseconds.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PREFILL_TOKEN_SHARE = 0.01
"""Default cost of a prompt token, as a share of one decode step of one request.

Prefill is bound by compute and decode by memory: a stage that decodes one request in
30 ms prefills about a hundred tokens in the time of another such step.
"""


class StageTimeError(ValueError):
    """A stage time that cannot be used; the text names the setting and its value."""


@dataclass(frozen=True)
class Curve:
    """Milliseconds over a count, linear between points and beyond the last two.

    Attributes:
        points: ``(count, ms)``, counts rising; one point means a constant.
    """

    points: tuple[tuple[float, float], ...]

    def __call__(self, count: float) -> float:
        """Time in ms for ``count`` requests or tokens, never below 0."""
        points = self.points
        if len(points) == 1:
            return points[0][1]
        upper = next(
            (i for i, (x, _) in enumerate(points) if x >= count and i > 0),
            len(points) - 1,
        )
        (x0, y0), (x1, y1) = points[upper - 1], points[upper]
        return max(y0 + (y1 - y0) * (count - x0) / (x1 - x0), 0.0)

    def scaled(self, factor: float, extra_ms: float = 0.0) -> "Curve":
        """The same curve times ``factor`` plus ``extra_ms``."""
        return Curve(tuple((x, y * factor + extra_ms) for x, y in self.points))

    @classmethod
    def affine(cls, base_ms: float, slope_ms: float) -> "Curve":
        """``base_ms + slope_ms * count``."""
        return cls(((0.0, base_ms), (1.0, base_ms + slope_ms)))


@dataclass(frozen=True)
class StageTime:
    """One stage: decode over requests, prefill over prompt tokens."""

    decode: Curve
    prefill: Curve

    def milliseconds(self, decode_requests: int, prefill_tokens: int) -> float:
        """Time of one forward.

        A mixed batch pays the decode of its requests and, on top, what its prompt
        tokens add to an empty prefill.
        """
        if not prefill_tokens:
            return self.decode(decode_requests)
        if not decode_requests:
            return self.prefill(prefill_tokens)
        added = self.prefill(prefill_tokens) - self.prefill(0)
        return self.decode(decode_requests) + added


@dataclass(frozen=True)
class StageProfile:
    """All stages of a pipeline, and what lies between them.

    Attributes:
        name: for tables and pictures.
        stages: one per pipeline stage, the head's time included in the last.
        hop_ms: latency of a message between two stages.
    """

    name: str
    stages: tuple[StageTime, ...]
    hop_ms: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """As a profile file holds it; :func:`profile_from_json` reads it back."""
        return {
            "name": self.name,
            "hop_ms": self.hop_ms,
            "stages": [
                {
                    "decode": [list(point) for point in stage.decode.points],
                    "prefill": [list(point) for point in stage.prefill.points],
                }
                for stage in self.stages
            ],
        }


_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
_AFFINE = re.compile(rf"{_NUMBER}(?:\+{_NUMBER}\*?([a-z]))?$")


def parse_affine(text: str, setting: str, variable: str) -> Curve:
    """Read ``"40"``, ``"20+10b"`` or ``"20+10*b"``.

    Args:
        text: the time in ms; spaces do not count.
        setting: name of the setting, for the error.
        variable: letter of the count, ``b`` (requests) or ``n`` (tokens).

    Raises:
        StageTimeError: the text is something else, or the time is always 0.
    """
    match = _AFFINE.match(text.replace(" ", ""))
    if not match or (match[3] or variable) != variable:
        raise StageTimeError(
            f'{setting} {text!r}: write milliseconds as "40" or "20+10{variable}"'
        )
    base, slope = float(match[1]), float(match[2] or 0)
    if base + slope <= 0:
        raise StageTimeError(f"{setting} {text!r}: must be above 0 ms")
    return Curve.affine(base, slope)


def default_prefill(decode: Curve) -> Curve:
    """One decode step of one request plus a hundredth of it per prompt token."""
    step = decode(1)
    return Curve.affine(step, PREFILL_TOKEN_SHARE * step)


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
