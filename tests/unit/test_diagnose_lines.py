"""The batch lines of every release, custom heads, and junk."""

import contextlib
from itertools import product

import diagnose_lines as lines
import pytest
from diagnose_lines import RELEASES, Shape
from hypothesis import given
from hypothesis import strategies as st

from sglang_ppfix.observe.log_lines import (
    DECODE,
    PREFILL,
    LineError,
    LineParser,
    rank_tags,
    source_of,
)

SECOND = 1_780_000_000.25
KINDS = ("plain", "swa", "mamba")
REST = b", gen throughput (token/s): 1.00, #queue-req: 0"


def decode_line(shape: Shape, rank: int = 3, running: int = 8) -> bytes:
    text = lines.decode(shape, running, 1234, 0.1, 422.1, 5, occupancy=0.93)
    return (lines.head(shape, SECOND, rank, cp=True) + text).encode()


def prefill_line(shape: Shape, rank: int = 3) -> bytes:
    text = lines.prefill(shape, 7, 4096, 0.1, 2, 9, pending=11, cached=13)
    return (lines.head(shape, SECOND, rank, cp=True) + text).encode()


def by_block(parser: LineParser, line: bytes) -> tuple[bytes, tuple[bytes, ...]]:
    """Origin and values as the block expression reads them."""
    known = parser.block_pattern(())
    assert known is not None
    (row,) = known.pattern.findall(line)
    (shape,) = [shape for shape in known.shapes if row[shape.first]]
    return row[0] + row[3], shape.pick(row)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("kv", KINDS)
def test_every_shape_of_a_release_reads_the_same(release: str, kv: str) -> None:
    """Fails if a key is read by its place, or a release's separator is not known."""
    for tp, dp, timer, spec, mode in product(
        (1, 2), (None, 1), (False, True), (None, 2.1), (None, "prefill", "decode")
    ):
        shape = Shape(
            release, tp, dp, True, kv, timer, spec, mode, iteration=tp > 1, mfu=timer
        )
        parser = LineParser()
        line = decode_line(shape)
        found = parser.parse(line)
        assert found.kind == DECODE
        running, tok_s, queue, held, usage = found.values[:5]
        assert (running, tok_s, queue, held) == (b"8", b"422.10", b"5", b"1234")
        assert float(usage) == 0.1
        assert found.values[6] == b"True"
        assert found.values[7] == (b"" if spec is None else b"2.10")
        has_timer = timer and shape.version >= (0, 5, 11)
        assert found.values[8] == (b"93.00" if has_timer else b"")
        assert rank_tags(found.origin)["PP"] == 3
        assert by_block(parser, line) == (found.origin, found.values)

        line = prefill_line(shape)
        found = parser.parse(line)
        assert found.kind == PREFILL
        assert found.values[:4] == (b"2", b"7", b"9", b"4096")
        assert found.values[5] == b"13"
        assert by_block(parser, line) == (found.origin, found.values)


@pytest.mark.parametrize(
    ("release", "tags"),
    [
        ("0.5.4.post3", "DP1 TP0 EP0 PP3"),
        ("0.5.8.post1", "DP1 PP3 TP0 EP0"),
        ("0.5.23", "DP1 PP3 ATTN_CP0 MOE_DP0 TP0 EP0"),
    ],
)
def test_rank_tags_in_any_order(release: str, tags: str) -> None:
    """Fails if tags are read in the order of one release."""
    line = decode_line(Shape(release, tp=2, dp=1))
    assert tags.encode() in line
    found = rank_tags(LineParser().parse(line).origin)
    assert (found["DP"], found["PP"], found["TP"]) == (1, 3, 0)


def test_milliseconds_are_read_where_they_are() -> None:
    """Fails if the decimals of SGLANG_LOG_MS are dropped."""
    parser = LineParser()
    with_ms = parser.parse(decode_line(Shape(milliseconds=True)))
    without = parser.parse(decode_line(Shape()))
    assert with_ms.second == pytest.approx(SECOND)
    assert without.second == pytest.approx(SECOND - 0.25)


@pytest.mark.parametrize(
    "line",
    [
        "2025-10-20 03:02:22 INFO 31223 [DP3 TP3 EP3 scheduler.py:222] {}",
        '{{"asctime": "2025-10-20 03:02:22,345", "message": "{}"}}',
        "INFO 2025-10-20T03:02:22 PP2: {}",
        "\x1b[32m2025-10-20 03:02:22\x1b[0m - sglang - {}",
    ],
)
def test_custom_heads(line: str) -> None:
    """Fails if only SGLang's own head is understood."""
    message = lines.decode(Shape(), 8, 1234, 0.1, 422.1, 5)
    found = LineParser().parse(line.format(message).encode())
    assert found.values[:4] == (b"8", b"422.10", b"5", b"1234")
    assert int(found.second) == 1760929342


def test_two_writers_in_one_line_give_the_whole_one() -> None:
    """Fails if a torn line loses the line that follows in it."""
    whole = decode_line(Shape(), rank=1)
    parser = LineParser()
    found = parser.parse(decode_line(Shape())[:70] + whole)
    assert rank_tags(found.origin)["PP"] == 1
    assert parser.torn == 1


@pytest.mark.parametrize(
    "line",
    [
        b"[2026-05-28 20:26:40 PP0] Decode batch, #running-req: 8, #token: 12",
        b"[2026-05-28 20:26:40 PP0] Decode batch",
        b"[2026-05-28 20:26:40 PP0] Decode batch, #running-req: x" + REST,
        b"Decode batch, #running-req: 8" + REST,
        b"[2026-15-48 20:26:40 PP0] Decode batch, #running-req: 8" + REST,
    ],
)
def test_what_cannot_be_used_is_refused(line: bytes) -> None:
    """Fails if half a line is taken for a whole one, or ends in another exception."""
    with pytest.raises(LineError):
        LineParser().parse(line)


@given(st.binary(max_size=80), st.integers(0, 120), st.sampled_from(RELEASES))
def test_junk_in_a_line_is_read_or_refused(
    junk: bytes, place: int, release: str
) -> None:
    """Fails if any bytes inside a line raise anything but the one error."""
    parser = LineParser()
    line = decode_line(Shape(release))
    parser.parse(line)
    torn = line[:place] + junk.replace(b"\n", b"") + line[place:]
    with contextlib.suppress(LineError):
        assert parser.parse(torn).values


@given(
    running=st.integers(0, 4096),
    held=st.integers(0, 10**7),
    tok_s=st.floats(0, 1e6),
    queue=st.integers(0, 10**5),
)
def test_values_survive(running: int, held: int, tok_s: float, queue: int) -> None:
    """Fails if a learned shape captures a value only in part."""
    parser = LineParser()
    shape = Shape("0.5.11")
    parser.parse(decode_line(shape))
    text = lines.decode(shape, running, held, 0.5, tok_s, queue)
    line = (lines.head(shape, SECOND, 0) + text).encode()
    _, values = by_block(parser, line)
    assert [int(values[0]), int(values[2]), int(values[3])] == [running, queue, held]
    assert float(values[1]) == pytest.approx(tok_s, abs=0.006)


def test_source_is_the_text_before_the_head() -> None:
    """Fails if a collector's times make servers, or its names do not."""
    parser = LineParser()
    line = decode_line(Shape())
    for prefix, name in (
        (b"", b""),
        (b"sglang-1  | ", b"sglang-1  |"),
        (b"2026-05-28T20:26:40.123456789Z ", b""),
        (b"pod/a-2 2026-05-28T20:26:41+02:00 ", b"pod/a-2"),
        (b"Nov 29 18:24:24 host sglang[12345]: ", b"host sglang[]:"),
        (b"Nov  9 08:04:02 host sglang[12345]: ", b"host sglang[]:"),
    ):
        found = parser.parse(prefix + line)
        assert source_of(found.origin) == name
        assert rank_tags(found.origin)["PP"] == 3
        assert found.second == pytest.approx(SECOND - 0.25)
        assert by_block(parser, prefix + line)[0] == found.origin


def test_tags_in_a_collectors_name_are_no_ranks() -> None:
    """Fails if a pod called PP7 becomes a stage."""
    found = LineParser().parse(b"pod PP7 TP3 | " + decode_line(Shape(), rank=1))
    assert rank_tags(found.origin)["PP"] == 1
    assert "TP" not in rank_tags(found.origin)
