"""SGLang's batch lines, 0.5.4 to 0.5.23, parsed by key and never by position.

A line is read by its ``key: value`` pairs. The pairs of a good line become a regular
expression for the lines of the same shape, and whole blocks of a log are read with it
at once; a block with any other line is read line by line. Shapes of the releases:
``docs/diagnose.md``.
"""

import re
from collections.abc import Callable
from datetime import datetime, timezone
from operator import itemgetter
from typing import NamedTuple

DECODE = b"Decode batch"
PREFILL = b"Prefill batch"

_TAG = re.compile(rb"(?<![A-Za-z0-9_])(ATTN_CP|MOE_DP|DP|PP|TP|EP)(\d{1,5})(?!\w)")
STAMP = re.compile(rb"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(?!\d)")
_PAIR = re.compile(rb"(?:, |\. )([^,:\n]*[^,: \n]): ([\w.+-]+)%?")
_OWN_STAMP = re.compile(rb"\[[0-9-]{10} [0-9:]{8}[. \]]")
# Times of a log collector: ISO, syslog, and numbers too long to be a name's.
_TIMES = re.compile(
    rb"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,0-9]*(?:Z|[+-]\d\d:?\d\d)?"
    rb"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{5,}"
)
#: SGLang's own head. Other heads are read too, but slowly.
_HEAD = (
    rb"([^\n]*?\[)([0-9-]{10} [0-9:]{8})(?:\.([0-9]+))?"
    rb"((?: [A-Z_]+[0-9]+)*)\] ()"
)
#: Explicit sets: a class like backslash-w makes the matching of bytes much slower.
_VALUE = rb"[0-9A-Za-z_.+-]"
#: Columns of a row before the values: the four of the head, and one always empty.
_EMPTY, _FIRST_VALUE = 4, 5
#: Shapes of one kind that blocks are searched for; servers print one or two.
_MOST_SHAPES = 3

# Canonical order of the values of a line; a key that a line lacks reads b"".
DECODE_KEYS: tuple[tuple[bytes, ...], ...] = (
    (b"#running-req",),
    (b"gen throughput (token/s)",),
    (b"#queue-req",),
    (b"#token", b"#full token", b"#gpu token"),
    (b"token usage", b"full token usage", b"gpu token usage"),
    (b"swa token usage", b"mamba usage"),
    (b"cuda graph", b"cpu graph", b"npu graph", b"musa graph"),
    (b"accept len",),
    (b"fwd occupancy",),
)
PREFILL_KEYS: tuple[tuple[bytes, ...], ...] = (
    (b"#running-req",),
    (b"#new-seq",),
    (b"#queue-req",),
    (b"#new-token",),
    (b"token usage", b"full token usage"),
    (b"#cached-token",),
    (b"#pending-token",),
    (b"fwd occupancy",),
    (b"input throughput (token/s)",),
)
_KEYS = {DECODE: DECODE_KEYS, PREFILL: PREFILL_KEYS}
#: The first values of both kinds must be there, and be numbers.
_REQUIRED = 2

Values = tuple[bytes, ...]


class BatchLine(NamedTuple):
    """One batch line.

    Attributes:
        kind: ``DECODE`` or ``PREFILL``.
        origin: what identifies the writer: text before the stamp, and rank tags.
            Equal bytes mean the same rank of the same server.
        second: seconds since the epoch, the log's own wall clock read as UTC.
        values: raw values in the order of ``DECODE_KEYS`` or ``PREFILL_KEYS``.
    """

    kind: bytes
    origin: bytes
    second: float
    values: Values


class LineError(ValueError):
    """A batch line that cannot be used; the text is a reason for the count."""


class Clock:
    """Seconds out of time stamps; neighbours mostly share one."""

    def __init__(self) -> None:
        self._stamp = b""
        self._second = 0.0

    def second(self, stamp: bytes, part: bytes | None) -> float:
        """Seconds since the epoch of ``stamp`` and its decimals.

        Raises:
            LineError: no such date.
        """
        if stamp != self._stamp:
            try:
                moment = datetime.fromisoformat(stamp.decode("ascii"))
            except ValueError:
                raise LineError("bad time stamp") from None
            self._second = moment.replace(tzinfo=timezone.utc).timestamp()
            self._stamp = stamp
        return self._second + float(b"0." + part) if part else self._second


class Shape(NamedTuple):
    """One shape of a line inside a block expression.

    Attributes:
        decode: a decode line; else a prefill line.
        first: column of ``#running-req``; filled by this shape only.
        seqs, tokens: columns of ``#new-seq`` and ``#new-token``, for a prefill line.
        busy: column of ``fwd occupancy``.
        pick: row -> values in canonical order.
    """

    decode: bool
    first: int
    seqs: int
    tokens: int
    busy: int
    pick: Callable[[Values], Values]


class BlockPattern(NamedTuple):
    """One expression for all lines of a block that matter.

    Attributes:
        pattern: its ``findall`` gives one row a line: text before the stamp, stamp,
            decimals, tags, an empty column, the values of every shape, and, with
            marks, the whole line when it is another marked one.
        shapes: how to read a row.
    """

    pattern: re.Pattern[bytes]
    shapes: tuple[Shape, ...]


class LineParser:
    """Parses batch lines, learning the shapes it meets."""

    def __init__(self) -> None:
        self.torn = 0
        self.clock = Clock()
        self._shapes: dict[bytes, list[tuple[bytes, ...]]] = {DECODE: [], PREFILL: []}
        self._blocks: dict[tuple[bytes, ...], BlockPattern] = {}

    def parse(self, line: bytes) -> BatchLine:
        """Parse one line that holds ``Decode batch`` or ``Prefill batch``.

        Raises:
            LineError: half a line, no time stamp, bad numbers.
        """
        kind = DECODE if DECODE in line else PREFILL
        head, _, rest = line.partition(kind)
        if DECODE in rest or PREFILL in rest:
            # Two writers shared a line: what came last is whole, if anything is.
            self.torn += 1
            stamps = [found.start() for found in STAMP.finditer(line)]
            start = line.rfind(b"[", 0, stamps[-1] + 1) if stamps else 0
            if start <= 0:
                raise LineError("half line")
            return self.parse(line[start:])
        before = head_of(head)
        stamp = STAMP.match(head, len(before))
        if stamp is None:
            raise LineError("no time stamp")
        pairs = _PAIR.findall(rest)
        values = _canonical(dict(pairs), kind)
        self._learn(kind, tuple(name for name, _ in pairs))
        # SGLang's own head has the tags behind the stamp; what is before is a name.
        where = head[len(before) :] if before.endswith(b"[") else head
        tags = b"".join(b" " + name + number for name, number in _TAG.findall(where))
        second = self.clock.second(stamp.group(1), stamp.group(2))
        return BatchLine(kind, before + tags, second, values)

    def _learn(self, kind: bytes, names: tuple[bytes, ...]) -> None:
        shapes = self._shapes[kind]
        if names not in shapes:
            shapes.append(names)
            del shapes[:-_MOST_SHAPES]
            self._blocks.clear()

    def block_pattern(self, marks: tuple[bytes, ...]) -> BlockPattern | None:
        """Expression for blocks of the shapes seen last; None before any line.

        Args:
            marks: other lines that matter are those that hold one of these.
        """
        if not any(self._shapes.values()):
            return None
        found = self._blocks.get(marks)
        if found is None:
            found = self._blocks[marks] = _block_pattern(self._shapes, marks)
        return found


def _canonical(pairs: dict[bytes, bytes], kind: bytes) -> Values:
    values = tuple(
        next((pairs[name] for name in names if name in pairs), b"")
        for names in _KEYS[kind]
    )
    if not all(values[:_REQUIRED]):
        raise LineError("half line")
    try:
        int(values[0])
        float(values[1])
    except ValueError:
        raise LineError("bad number") from None
    return values


def _block_pattern(
    shapes: dict[bytes, list[tuple[bytes, ...]]], marks: tuple[bytes, ...]
) -> BlockPattern:
    column = _FIRST_VALUE
    alternatives, found = [], []
    for kind, several in shapes.items():
        for names in several:
            text, order = _shape_pattern(kind, names, column)
            column += sum(index != _EMPTY for index in order)
            alternatives.append(text)
            first, seqs, _, tokens = order[:4]
            busy = order[8 if kind == DECODE else 7]
            pick = itemgetter(*order)
            found.append(Shape(kind == DECODE, first, seqs, tokens, busy, pick))
    pattern = rb"^(?:" + _HEAD + rb"(?:" + rb"|".join(alternatives) + rb"),?[ \r]*"
    if marks:
        some = rb"|".join(map(re.escape, marks))
        pattern += rb"|([^\n]*?(?:" + some + rb")[^\n]*)"
    return BlockPattern(re.compile(pattern + rb")$", re.MULTILINE), tuple(found))


def _shape_pattern(
    kind: bytes, names: tuple[bytes, ...], column: int
) -> tuple[bytes, list[int]]:
    """Expression of one shape, and the columns of its values from ``column`` on."""
    place = {name: i for i, same in enumerate(_KEYS[kind]) for name in same}
    order = [_EMPTY] * len(_KEYS[kind])
    pieces = []
    for name in names:
        index = place.get(name)
        if index is None or order[index] != _EMPTY:
            pieces.append(re.escape(name) + rb": [^,\[\n]+")
            continue
        order[index] = column
        column += 1
        pieces.append(re.escape(name) + rb": (" + _VALUE + rb"+)%?")
    return kind + rb"(?: \[\d+\])?[,.] " + rb", ".join(pieces), order


def rank_tags(origin: bytes) -> dict[str, int]:
    """Rank tags of an origin: ``{"PP": 3, "TP": 0}``."""
    where = origin.rpartition(b"[")[2]
    return {name.decode(): int(number) for name, number in _TAG.findall(where)}


def head_of(line: bytes) -> bytes:
    """Text of a line up to its time stamp: up to SGLang's own, where it has one."""
    own = _OWN_STAMP.search(line)
    if own is not None:
        return line[: own.start() + 1]
    stamp = STAMP.search(line)
    return line[: stamp.start()] if stamp is not None else b"["


def source_of(origin: bytes) -> bytes:
    """What a log collector put before SGLang's head, without its times.

    Tells the servers of a mixed file apart: ``sglang-1  |`` and ``sglang-2  |``.
    """
    before = origin.rpartition(b"[")[0]
    return _TIMES.sub(b"", before).strip(b" [")
