"""What the rules look at: configuration, load levels, facts, and predictions."""

import math
from dataclasses import dataclass, field

from .diagnosis_law import Anchor, Curves, stage_curves, throughput
from .diagnosis_types import Configuration, OperatingPoint, Prediction
from .log_ranks import Divergence

#: A level is judged when it lasted this share of the busy time.
_LEAST_SHARE = 0.1


@dataclass
class Facts:
    """What is known beside configuration and load levels.

    Attributes:
        stage_busy: PP rank -> busy share of its stage, and ``busy_source`` in words.
        stage_weights_gb: PP rank -> GB of weights.
        divergences: ranks that printed other batches than their peers.
        clean_log: no line of the input was torn, halved or lost.
        hang_lines: watchdog lines about a collective that never ended.
        retractions: requests sent back because the KV cache was full.
        two_servers: two servers seem to write into one stream.
        plugin: the plugin's lines are in the log.
        has_log: a log or a live server was read.
        decode_lines, prefill_lines: of the lead rank.
        pp_ranks: PP ranks that printed.
        tagged: lines carry a PP tag; plain: lines have SGLang's own head.
    """

    stage_busy: dict[int, float] = field(default_factory=dict)
    busy_source: str = ""
    stage_weights_gb: dict[int, float] = field(default_factory=dict)
    divergences: list[Divergence] = field(default_factory=list)
    clean_log: bool = True
    hang_lines: int = 0
    retractions: int = 0
    two_servers: bool = False
    plugin: bool = False
    has_log: bool = False
    decode_lines: int = 0
    prefill_lines: int = 0
    new_seqs_per_prefill: float = 0.0
    pp_ranks: tuple[int, ...] = ()
    tagged: bool = False
    plain: bool = True


@dataclass
class Context:
    """One pipeline, ready for the rules."""

    config: Configuration
    points: list[OperatingPoint]
    facts: Facts
    given: list[OperatingPoint] = field(default_factory=list)

    @property
    def pp_size(self) -> int:
        """Stages; 1 when unknown."""
        return self.config.pp_size or 1

    @property
    def lasting(self) -> list[OperatingPoint]:
        """Levels that lasted: the others are ramps, and good as anchors only."""
        return [
            p
            for p in self.points
            if p.share >= _LEAST_SHARE and (p.tok_s or p.logged is not None)
        ]

    @property
    def main(self) -> OperatingPoint | None:
        """The level with most requests in flight among those that lasted."""
        return max(self.lasting, key=_load, default=None)

    def single_lap_s(self) -> float | None:
        """Lap time with one request alone, in seconds."""
        for point in (*self.given, *self.points):
            alone = point.in_flight is not None and point.in_flight.value < 1.3
            if alone and point.tok_s:
                return point.accepted / point.tok_s
        return None

    def lap(self, point: OperatingPoint) -> float | None:
        """Lap time at a level, in seconds, prefills included."""
        if point.in_flight is None or not point.tok_s:
            return None
        return point.in_flight.value * point.accepted / point.tok_s

    def anchor(self, point: OperatingPoint) -> Anchor | None:
        """Stage time that a level shows."""
        lap = self.lap(point)
        if lap is None or point.largest is None or point.filled is None:
            return None
        lap *= 1.0 - (point.stretch or 0.0)
        # Up to P filled slots the largest sets the lap; above, their sum.
        stages = max(point.filled.value, float(self.pp_size))
        return Anchor(point.largest.value, lap / stages)

    def curves(self, point: OperatingPoint) -> Curves | None:
        """Stage times that fit this level and the smallest micro-batch measured."""
        own = self.anchor(point)
        if own is None:
            return None
        # The other must be at or below the size that is asked for: no extrapolation.
        asked = self.ideal(point) or 1
        others = [self.anchor(p) for p in (*self.given, *self.points)]
        smaller = [a for a in others if a is not None and a.size < asked + 0.5]
        least = [min(smaller, key=lambda a: a.size)] if smaller else []
        config = self.config
        dense = config.layers is not None and config.experts is None
        if config.origin.get("layers") == "--layers":
            dense = False  # the user gave a number, not a model
        return stage_curves([*least, own], config.experts, config.top_k, dense)

    def spread(self, point: OperatingPoint, slots: int, what: str) -> Prediction | None:
        """Throughput if the requests of a level were spread evenly over ``slots``."""
        curves = self.curves(point)
        if curves is None or point.in_flight is None or not point.tok_s:
            return None
        number, pp_size = point.in_flight.value, self.pp_size
        low, high = sorted(
            point.accepted
            * throughput(number, slots, curve, pp_size, self.prefill_s(point))
            for curve in (curves.slow, curves.fast)
        )
        return Prediction(what, low, (low + high) / 2, high, point.tok_s, curves.words)

    def prefill_s(self, point: OperatingPoint) -> float:
        """Seconds of a lap that prefills take."""
        return (self.lap(point) or 0.0) * (point.stretch or 0.0)

    def ideal(self, point: OperatingPoint) -> int | None:
        """Largest micro-batch when spread evenly over P slots."""
        if point.in_flight is None:
            return None
        return max(math.ceil((point.in_flight.value - 0.3) / self.pp_size), 1)


def _load(point: OperatingPoint) -> float:
    if point.in_flight is not None:
        return point.in_flight.value
    return point.mean_micro_batch.value if point.mean_micro_batch else 0.0
