"""Servers that were reported or measured, with their sources.

A preset holds one or more readings of its report: what the stage times must be, given
the figures. The first is the one that rows are made of; the others are the uncertainty.
docs/simulator.md says how each was derived and what it cannot reproduce.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from .curve import Affine, Curve, Experts, Points
from .load import Load, closed_loop
from .profile import NO_CPU, Profile, default_layers, split_layers
from .server import Server


@dataclass(frozen=True)
class Reading:
    """Stage times that explain a report.

    Attributes:
        name: what was assumed.
        profile: the stage times.
        ideal_loop: whether data is taken to go on as soon as it is there, so that
            async depth costs nothing.
    """

    name: str
    profile: Profile
    ideal_loop: bool = False


@dataclass(frozen=True)
class Preset:
    """A reported server.

    Attributes:
        name: of the preset.
        source: where the figures come from.
        server: as reported; what stock is run on.
        advised: what all other policies are run on.
        readings: the central one first.
        load: load for a number of clients.
        clients: rows that are made without being asked for.
        reported: clients -> output tokens per second.
        spread: relative spread of the reported figures, as far as it is said.
    """

    name: str
    source: str
    server: Server
    advised: Server
    readings: tuple[Reading, ...]
    load: Callable[[int], Load]
    clients: tuple[int, ...]
    reported: dict[int, float]
    spread: float


def _steady(clients: int) -> Load:
    """Requests of one length: a benchmark with a fixed number of output tokens."""
    return closed_loop(clients, max(4, 6 * clients), 100, 1024, shape="fixed")


# --- the-case
# One client 34.3 tok/s, 32 clients 248.1, in 4 of 16 slots of 8 requests.
_LAYERS, _STAGES, _EXPERTS, _TOP_K = 61, 8, 384, 8
_HOP, _LAP_LATENCY = 0.05e-3, 2.0e-3
# Prefill and the start take part of the time: a lap is shorter than clients / tok_s.
_DECODE_PART = 1.0125
# Compute of a prompt token, whole model: 2 * 32e9 active parameters at 1 PFLOPS.
_TOKEN = 64e-6
# Decode steps of TP8 on the same box with vLLM (voipmonitor/rtx6kpro, 29f3863), for
# the shape of the curve only. Milliseconds.
_TP8_STEPS = {
    1: 10.93, 2: 13.22, 4: 16.49, 8: 22.86, 16: 32.47, 32: 37.26, 64: 45.78, 128: 59.13
}  # fmt: skip


def _case_profile(
    shape: str, head: float, late_stages: int, layers: tuple[int, ...]
) -> Profile:
    """The model's times through both reported points.

    Args:
        shape: ``experts``, ``affine`` or ``tp8``.
        head: seconds of lm_head and sampling.
        late_stages: stage times by which the loop holds back a lap of four slots.
        layers: layers per stage.
    """
    rest = (_STAGES - 1) * _HOP + _LAP_LATENCY + head
    one = 1 / 34.3 - rest
    lap = 32 / 248.1 / _DECODE_PART - rest
    eight = lap / (1 + late_stages * max(default_layers(_LAYERS, _STAGES)) / _LAYERS)
    prefill: Curve = Affine(0.7, _TOKEN)
    if shape == "experts":
        experts = Experts.through(_EXPERTS, _TOP_K, (1, one), (8, eight))
        decode: Curve = experts
        prefill = replace(experts, per_token=_TOKEN)
    elif shape == "affine":
        slope = (eight - one) / 7
        decode = Affine(one - slope, slope)
    else:
        grows = (eight - one) / (_TP8_STEPS[8] - _TP8_STEPS[1])
        decode = Points.of(
            [(b, one + grows * (ms - _TP8_STEPS[1])) for b, ms in _TP8_STEPS.items()]
        )
    return split_layers(
        f"the-case, {shape}, head {head * 1e3:g} ms",
        decode,
        prefill,
        layers,
        head,
        hop=_HOP,
        way_back=_LAP_LATENCY,
        cpu=NO_CPU,
    )


def check_split(layers: tuple[int, ...], stages: int, total: int, whose: str) -> None:
    """Refuse a split that is not one of this model.

    Raises:
        ValueError: another number of stages, an empty stage, or a wrong sum.
    """
    shown = ",".join(map(str, layers))
    if len(layers) != stages or min(layers) < 1:
        raise ValueError(
            f"--layers {shown}: allowed are {stages} numbers of at least 1"
        )
    if sum(layers) != total:
        raise ValueError(
            f"--layers {shown}: sum to {sum(layers)}, {whose} has {total} layers"
        )


def the_case(layers: tuple[int, ...] | None = None) -> Preset:
    """Kimi K2.6 on 8 RTX PRO 6000 over PCIe.

    Args:
        layers: layers per stage; None means SGLang's default. Stock's figures were
            measured with the default, so the stage times do not change with this.

    Raises:
        ValueError: another number of stages, or of layers.
    """
    if layers is not None:
        check_split(layers, _STAGES, _LAYERS, "preset the-case")
    split = layers or default_layers(_LAYERS, _STAGES)
    shapes = ("experts", "affine", "tp8")
    readings = [
        Reading("lap of 8 stages", _case_profile("experts", 1.4e-3, 0, split), True)
    ]
    for head in (1.0e-3, 1.8e-3):
        for shape in shapes:
            law = _case_profile(shape, head, 0, split)
            loop = _case_profile(shape, head, 2, split)
            readings.append(Reading("lap of 8 stages", law, True))
            readings.append(Reading("lap of 8 stages, and 2 held back", loop))
    server = Server(_STAGES, async_depth=8, max_running_requests=64)
    return Preset(
        "the-case",
        "field report: Kimi K2.6, 8 RTX PRO 6000 on PCIe, SGLang of about 0.5.11",
        server,
        replace(server, async_depth=0),
        tuple(readings),
        _steady,
        (1, 8, 16, 32, 64),
        {1: 34.3, 32: 248.1},
        0.03,
    )


# --- Public reports


def _deepseek_2080ti(
    name: str, cap: int, rows: int, reported: dict[int, float], spread: float
) -> Preset:
    """DeepSeek-V4-Flash on 8 RTX 2080 Ti, TP2 PP4, depth 2.

    t(1) and t(2) are from R1's 1 and 2 clients, t(4) from R2's 8, all other figures
    are predictions. Prefill: R4, 512 tokens in about 0.33 s a stage.
    """
    decode = Points.of([(1, 9.2e-3), (2, 12.1e-3), (4, 15.5e-3)])
    prefill = Affine(20e-3, 0.33 / 512)
    profile = Profile(name, (decode,) * 4, (prefill,) * 4, spread=0.05)
    server = Server(4, 2, rows, cap, chunked_prefill_size=512)
    return Preset(
        name,
        "field report: DeepSeek-V4-Flash, 8 RTX 2080 Ti, TP2 PP4, SGLang near 0.5.19",
        server,
        replace(server, async_depth=0),
        (Reading("through R1 and R2", profile),),
        lambda clients: closed_loop(
            clients, 8 * clients, 20, 512, stagger=1.0, seed=clients
        ),
        tuple(reported),
        reported,
        spread,
    )


def _r1() -> Preset:
    reported = {1: 26.5, 2: 41.3, 4: 67.6, 8: 105.6}
    # Other days: 25.2, 39.5, 65.6, 132.2.
    return _deepseek_2080ti("R1", 2, 8, reported, 0.06)


def _r2() -> Preset:
    reported = {1: 26.7, 2: 42.7, 4: 73.4, 8: 100.4, 16: 111.7}
    return _deepseek_2080ti("R2", 4, 16, reported, 0.28)


def _r8() -> Preset:
    """Kimi-K2.7 on 16 MI300A in 4 nodes, TP4 PP4, no async depth.

    t(1) from one client, t(2) from two in one slot; beyond, the experts of the shape.
    """
    lap = {1: 1 / 13.7, 2: 2 / 17.6}
    rest = 4e-3
    decode = Experts.through(_EXPERTS, _TOP_K, (1, lap[1] - rest), (2, lap[2] - rest))
    prefill = replace(decode, per_token=_TOKEN / 2)
    profile = split_layers(
        "R8",
        decode,
        prefill,
        default_layers(_LAYERS, 4),
        hop=0.2e-3,
        way_back=0.5e-3,
        spread=0.1,
    )
    server = Server(4, 0, 128, 32)
    reported = {1: 13.7, 2: 17.6, 4: 38.1, 6: 46.8}
    return Preset(
        "R8",
        "field report: Kimi-K2.7, 16 MI300A in 4 nodes, TP4 PP4",
        server,
        server,
        (Reading("through 1 and 2 clients", profile),),
        lambda clients: closed_loop(
            clients, 8 * clients, 100, 512, stagger=2.0, seed=clients
        ),
        tuple(reported),
        reported,
        0.1,
    )


_PRESETS: dict[str, Callable[[], Preset]] = {
    "the-case": the_case,
    "R1": _r1,
    "R2": _r2,
    "R8": _r8,
}


def preset_names() -> list[str]:
    """Names that :func:`preset` knows."""
    return list(_PRESETS)


@cache
def preset(name: str) -> Preset:
    """A preset by name.

    Raises:
        ValueError: no preset of that name.
    """
    try:
        make = _PRESETS[name]
    except KeyError:
        allowed = ", ".join(_PRESETS)
        raise ValueError(f"preset {name!r}: allowed are {allowed}") from None
    return make()
