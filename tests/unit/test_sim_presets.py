"""Reported servers: what the simulator makes of them."""

from dataclasses import replace

import pytest

from sglang_ppfix.sim.presets import Preset, Reading, preset, preset_names, the_case
from sglang_ppfix.sim.sweep import Case, run_case

LIGHTER_TAIL = (8, 8, 8, 8, 8, 8, 7, 6)


def _tok_s(
    given: Preset,
    reading: Reading,
    policy: str,
    clients: int,
    **changes: int | None,
) -> tuple[float, int]:
    server = given.server if policy == "stock" else given.advised
    server = replace(server, **changes) if changes else server
    outcome = run_case(Case(policy, server, given.load(clients), (reading,)))
    return outcome.tok_s, outcome.slots


def test_the_case_is_reproduced_by_every_reading() -> None:
    """34.3 tok/s with one client, 248.1 with 32, in 4 slots."""
    given = preset("the-case")
    for reading in given.readings:
        assert _tok_s(given, reading, "stock", 1)[0] == pytest.approx(34.3, rel=0.03)
        tok_s, slots = _tok_s(given, reading, "stock", 32)
        assert tok_s == pytest.approx(248.1, rel=0.03)
        assert slots == 4


def test_the_case_filled_evenly_is_in_the_predicted_range() -> None:
    """The design predicts 355 to 380 with SGLang's layers, 420 to 435 with a lighter
    tail, 270 to 300 for 16 slots of 2. Breaks when stage times, head or layers are
    wrong by more than a few per cent."""
    given = preset("the-case")
    tok_s, slots = _tok_s(given, given.readings[0], "balanced", 32)
    assert 355 <= tok_s <= 380
    assert slots == 8
    lighter = the_case(LIGHTER_TAIL)
    assert 420 <= _tok_s(lighter, lighter.readings[0], "balanced", 32)[0] <= 435
    sixteen = _tok_s(
        given, given.readings[0], "balanced", 32, async_depth=8, target_slots=16
    )
    assert 270 <= sixteen[0] <= 300
    assert sixteen[1] == 16


@pytest.mark.parametrize("layers", [(8,) * 7, (4, 4, 4, 4, 4, 4, 4, 1), (61, *[0] * 7)])
def test_the_case_has_61_layers(layers: tuple[int, ...]) -> None:
    """Stage times are shares of the whole: breaks when a part is taken for it."""
    with pytest.raises(ValueError, match=r"--layers .*: (allowed are 8|sum to 29)"):
        the_case(layers)


def test_r1_is_predicted_from_two_of_its_four_figures() -> None:
    """t(1) and t(2) are from 1 and 2 clients; 4 and 8 follow, and only with the wait
    that async depth costs: the law alone says 82 and 145 instead of 67.6 and 105.6."""
    given = preset("R1")
    (reading,) = given.readings
    for clients, reported in given.reported.items():
        tok_s = _tok_s(given, reading, "stock", clients)[0]
        assert tok_s == pytest.approx(reported, rel=0.10 if clients == 8 else 0.06)
    at_once = replace(reading, ideal_loop=True)
    assert _tok_s(given, at_once, "stock", 4)[0] > 1.15 * given.reported[4]
    assert _tok_s(given, at_once, "stock", 8)[0] > 1.3 * given.reported[8]


def test_r2_is_within_its_spread_but_for_16_clients() -> None:
    """The report gives 28 % spread. 16 clients do not fit any stage time that fits 8:
    docs/simulator.md says what is missing."""
    given = preset("R2")
    (reading,) = given.readings
    for clients in (1, 2, 4, 8):
        tok_s = _tok_s(given, reading, "stock", clients)[0]
        assert tok_s == pytest.approx(given.reported[clients], rel=given.spread)
    assert _tok_s(given, reading, "stock", 16)[0] > 1.4 * given.reported[16]


def test_r8_lies_between_packed_and_even_filling() -> None:
    """The order of arrivals is missing in the report. Few slots must be slower, and
    even filling not slower, than what was measured with 4 and 6 clients."""
    given = preset("R8")
    (reading,) = given.readings
    assert _tok_s(given, reading, "stock", 1)[0] == pytest.approx(13.7, rel=0.06)
    assert _tok_s(given, reading, "stock", 2)[0] == pytest.approx(17.6, rel=0.12)
    for clients in (4, 6):
        packed = _tok_s(given, reading, "stock", clients)[0]
        even = _tok_s(given, reading, "balanced", clients)[0]
        assert packed < given.reported[clients] < 1.05 * even


def test_unknown_presets_are_named() -> None:
    """The message lists what there is."""
    with pytest.raises(ValueError, match="allowed are the-case"):
        preset("the-cases")
    assert "the-case" in preset_names()
