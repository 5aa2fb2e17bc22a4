"""Stage times: what users write becomes the right milliseconds, or one clear line."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_ppfix.lab.profile_file import profile_from_json, stage_profile
from sglang_ppfix.lab.stage_time import Curve, StageTime, StageTimeError, parse_affine


@pytest.mark.parametrize(
    ("text", "at_one", "at_eight"),
    [("40", 40, 40), ("20+10b", 30, 100), ("20+10*b", 30, 100), (" 2.5 + .5b", 3, 6.5)],
)
def test_affine_texts(text: str, at_one: float, at_eight: float) -> None:
    """A parser that dropped the slope, or a spelling of it, would fail here."""
    curve = parse_affine(text, "--stage-ms", "b")
    assert (curve(1), curve(8)) == pytest.approx((at_one, at_eight))


@pytest.mark.parametrize(
    "text", ["", "b", "20+", "20+10n", "-5", "20-10b", "0", "20+10bb", "1e3", "ten"]
)
def test_bad_texts_name_setting_and_value(text: str) -> None:
    """Accepting nonsense, or an error without the value, would fail here."""
    with pytest.raises(StageTimeError) as error:
        parse_affine(text, "--stage-ms", "b")
    assert "--stage-ms" in str(error.value)
    assert repr(text) in str(error.value)


points = st.lists(
    st.tuples(st.integers(0, 500), st.floats(0, 1e3)),
    min_size=2,
    max_size=6,
    unique_by=lambda point: point[0],
).map(lambda found: tuple(sorted((float(x), y) for x, y in found)))


@given(points)
def test_a_curve_goes_through_its_points(
    found: tuple[tuple[float, float], ...],
) -> None:
    """Picking the wrong segment would miss a point."""
    curve = Curve(found)
    for count, ms in found:
        assert curve(count) == pytest.approx(ms, abs=1e-6)


@given(points, st.floats(0, 1))
def test_between_two_points_a_curve_is_linear(
    found: tuple[tuple[float, float], ...], part: float
) -> None:
    """Steps instead of lines, or the wrong neighbours, would fail here."""
    curve = Curve(found)
    for (x0, y0), (x1, y1) in itertools.pairwise(found):
        count = x0 + part * (x1 - x0)
        assert curve(count) == pytest.approx(y0 + part * (y1 - y0), abs=1e-6)


def test_beyond_its_ends_a_curve_goes_on_straight() -> None:
    """Holding the last value, or going below 0 ms, would fail here."""
    curve = Curve(((2.0, 30.0), (4.0, 50.0)))
    assert curve(8) == pytest.approx(90)
    assert curve(1) == pytest.approx(20)
    assert Curve(((2.0, 1.0), (4.0, 50.0)))(0) == 0


def test_a_mixed_batch_pays_decode_and_what_its_prompt_tokens_add() -> None:
    """Paying the base of a forward twice would fail here."""
    stage = StageTime(Curve.affine(20, 10), Curve.affine(30, 0.5))
    assert stage.milliseconds(2, 0) == 40
    assert stage.milliseconds(0, 100) == 80
    assert stage.milliseconds(2, 100) == 90


def test_the_default_prefill_is_a_step_and_a_hundredth_of_it_a_token() -> None:
    """The documented default; another one would change every published figure."""
    stage = stage_profile("20+10b", 2).stages[0]
    assert stage.prefill(0) == pytest.approx(30)
    assert stage.prefill(100) == pytest.approx(60)


def test_head_and_factors_reach_only_their_stage() -> None:
    """The head on a wrong stage, or unscaled by nothing, would fail here."""
    profile = stage_profile("40", 3, head_ms=5, factors=(1, 1, 0.5))
    assert [stage.decode(4) for stage in profile.stages] == pytest.approx([40, 40, 25])


def test_a_profile_file_is_read(tmp_path) -> None:
    """One stage stands for all; what the command line says wins over the file."""
    path = tmp_path / "moe.json"
    path.write_text(
        json.dumps(
            {
                "name": "MoE",
                "hop_ms": 1.5,
                "stages": [{"decode": [[1, 10], [8, 24]], "prefill": "5+0.1n"}],
            }
        )
    )
    profile = stage_profile(str(path), 4)
    assert (profile.name, profile.hop_ms, len(profile.stages)) == ("MoE", 1.5, 4)
    assert profile.stages[3].decode(4) == pytest.approx(16)
    assert profile.stages[3].prefill(50) == pytest.approx(10)
    other = stage_profile(str(path), 4, prefill="7", hop_ms=0.25)
    assert (other.hop_ms, other.stages[0].prefill(50)) == (0.25, 7)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([], '"stages"'),
        ({"stages": []}, "0 stages"),
        ({"stages": [{"decode": "40"}] * 2}, "2 stages"),
        ({"stages": [{}]}, '"decode"'),
        ({"stages": [{"decode": [[2, 1], [1, 2]]}]}, "rising"),
        ({"stages": [{"decode": [[1, "x"]]}]}, "[[count, ms], ...]"),
        ({"stages": [{"decode": [[1, -4]]}]}, "below 0"),
        ({"stages": [{"decode": "40", "prefill": "1+b"}]}, "prefill"),
        ({"stages": [{"decode": "40"}], "hop_ms": -1}, "hop_ms"),
    ],
)
def test_a_bad_profile_says_what_is_wrong(content: object, says: str) -> None:
    """A traceback, or a message without the place, would fail here."""
    with pytest.raises(StageTimeError) as error:
        profile_from_json(content, 4, "moe.json")
    assert "moe.json" in str(error.value)
    assert says in str(error.value)


def test_a_missing_or_broken_file_says_so(tmp_path) -> None:
    """The reason must survive: no such file, or no JSON."""
    with pytest.raises(StageTimeError, match="No such file"):
        stage_profile(str(tmp_path / "none.json"), 2)
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(StageTimeError, match="not JSON"):
        stage_profile(str(tmp_path / "broken.json"), 2)


def test_a_profile_survives_the_way_to_the_server() -> None:
    """A field lost in the device file would give the servers other times."""
    profile = stage_profile("20+10b", 3, prefill="5+1n", hop_ms=2, head_ms=4)
    assert profile_from_json(profile.to_json(), 3, "device file") == profile
