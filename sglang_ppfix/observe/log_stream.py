"""Log bytes in, lists of lines out: files, gzip and standard input, block by block.

Memory stays at a few blocks whatever the size of the input.
"""

import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast

BLOCK_BYTES = 1 << 20
#: A "line" longer than this is binary junk or a dump, never a log line.
LONGEST_LINE = 1 << 18

_GZIP_MAGIC = b"\x1f\x8b"
# Tab, line ends, form feed and ESC (colours) belong in a log; the rest does not.
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\x0b\x0c\x1b"))


class LogInputError(ValueError):
    """A log cannot be read; the text is one line for the user."""


@dataclass
class StreamCount:
    """What went through: everything, and what was skipped."""

    bytes: int = 0
    lines: int = 0
    binary_lines: int = 0


def read_blocks(path: str, count: StreamCount) -> Iterator[bytes]:
    """Blocks of whole lines of ``path``, joined by line ends.

    Args:
        path: a file, plain or gzip (told by its first bytes); ``-`` is standard input.
        count: filled while reading. Lines with control characters are dropped and
            counted as binary.

    Raises:
        LogInputError: the file cannot be opened or read.
    """
    try:
        with _open(path) as stream:
            yield from _split(stream, count)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LogInputError(f"cannot read {path}: {reason}") from error


def _open(path: str) -> BinaryIO:
    if path == "-":
        piped = sys.stdin.buffer
        head = piped.peek(2)[:2] if isinstance(piped, io.BufferedReader) else b""
        return cast(BinaryIO, gzip.open(piped)) if head == _GZIP_MAGIC else piped
    handle = open(path, "rb")  # noqa: SIM115 - closed by the caller's with
    head = handle.read(2)
    handle.seek(0)
    return cast(BinaryIO, gzip.open(handle)) if head == _GZIP_MAGIC else handle


def _split(stream: BinaryIO, count: StreamCount) -> Iterator[bytes]:
    rest = b""
    while data := stream.read(BLOCK_BYTES):
        count.bytes += len(data)
        whole, end, tail = data.rpartition(b"\n")
        if end:
            yield _clean(rest + whole, count)
            rest = tail
        else:
            rest += data
        if len(rest) > LONGEST_LINE:
            yield _clean(rest, count)
            rest = b""
    if rest:
        yield _clean(rest, count)


def _clean(block: bytes, count: StreamCount) -> bytes:
    count.lines += block.count(b"\n") + 1
    if len(block.translate(None, _CONTROL)) == len(block):
        return block
    lines = block.split(b"\n")
    clean = [
        line
        for line in lines
        if len(line) <= LONGEST_LINE
        and len(line.translate(None, _CONTROL)) == len(line)
    ]
    count.binary_lines += len(lines) - len(clean)
    return b"\n".join(clean)
