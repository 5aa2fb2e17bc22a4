"""How long one stage needs: ``t(b)`` of decode and of prefill. Pure Python.

All times are milliseconds.
"""

import re
from dataclasses import dataclass
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
        """As a profile file; :func:`.profile_file.profile_from_json` reads it."""
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
