"""What to expect of numbers of slots that are not in force: devices and host. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from .choosing import least_lap

#: Less than this is not worth a trial.
WORTH_TRYING = 0.02
#: Stages that share a bottleneck are faster when fewer are busy, which their times do
#: not say: fewer slots are tried, too, when they could lose no more than this.
PROBE = 0.05


class Outlook(NamedTuple):
    """The lap with a number of slots.

    Attributes:
        least: it is not shorter, in seconds, as far as is known.
        expected: the guess to choose by among several, in seconds.
    """

    least: float
    expected: float


def outlook(
    stages: Sequence[Mapping[int, float]],
    live: int,
    filled: int,
    measured: Mapping[int, tuple[int, float]],
) -> Outlook:
    """Lap of ``live`` requests in ``filled`` slots.

    What the host adds to the devices' bound is known where a lap was measured, and
    lies on the line between two of those. Below the least of them it is guessed in
    proportion to the slots. Above the largest nothing is known: it may be less there,
    as the schedulers of all stages work side by side.

    Args:
        stages: decode time by micro-batch size, ms, one per pipeline stage.
        live: requests in flight.
        filled: slots that hold them, at most ``live``.
        measured: (requests in flight, seconds) of a lap by filled slots.
    """
    bound = least_lap(stages, live, filled) / 1e3

    def host(known: int) -> float:
        requests, seconds = measured[known]
        return max(seconds - least_lap(stages, requests, known) / 1e3, 0.0)

    below = max((known for known in measured if known <= filled), default=None)
    above = min((known for known in measured if known >= filled), default=None)
    if above is None:
        return Outlook(bound, bound)
    if below is None:
        return Outlook(bound, bound + host(above) * filled / above)
    part = 0.0 if above == below else (filled - below) / (above - below)
    lap = bound + host(below) + part * (host(above) - host(below))
    return Outlook(lap, lap)


def worth_trying(
    stages: Sequence[Mapping[int, float]],
    candidates: Iterable[int],
    base: int,
    measured: Mapping[int, tuple[int, float]],
) -> int | None:
    """The number of filled slots to try next; of equals the farthest from ``base``, as
    it says most of those between. None if no candidate could be better.

    Args:
        stages: decode time by micro-batch size, ms, one per pipeline stage.
        candidates: numbers of filled slots.
        base: the number in force.
        measured: (requests in flight, seconds) of a lap by filled slots, ``base``
            among them.
    """
    live, lap_s = measured[base]
    views = {each: outlook(stages, live, each, measured) for each in candidates}
    could = [
        filled
        for filled, view in views.items()
        if view.least < lap_s * (1 - WORTH_TRYING)
    ] or [
        filled
        for filled, view in views.items()
        if filled < base and view.least < lap_s * (1 + PROBE)
    ]
    if not could:
        return None
    least = min(views[filled].expected for filled in could)
    near = [f for f in could if views[f].expected <= least * (1 + WORTH_TRYING)]
    return max(near, key=lambda filled: (abs(filled - base), -filled))
