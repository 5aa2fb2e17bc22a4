"""Do all PP ranks run the same batches in the same order?

Every rank of a pipeline prints the same sequence of batch lines. A rank that admits
other requests than its peers prints another one (SGLang issues 34572, 30747): compare
by ordinal, never by time. A line lost from the log is not a divergence, so the
comparison looks for the place where both sequences go on alike.
"""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, replace

#: Lines that must agree behind a gap, and how many lines a gap may lose.
_RESYNC_LINES = 5
_LONGEST_GAP = 8
#: Lines kept per rank while the others are behind.
_KEEP = 1 << 18
_TRIM = 1 << 12
#: Lines that must agree behind a gap at the very end of a log.
_TAIL_LINES = 1


@dataclass(frozen=True)
class Divergence:
    """Where a rank left the others.

    Attributes:
        rank, reference: PP ranks.
        ordinal: batch line of the rank, counted from the first compared one.
        second: time of that line, seconds since the epoch.
        seen, expected: what the rank printed and what the reference did.
        lines: lines that differ; more than one, or nothing agreed any more.
        at_end: the log ends here, so only a line or two speak for it.
    """

    rank: int
    reference: int
    ordinal: int
    second: float
    seen: str
    expected: str
    lines: int
    at_end: bool


def compare_digests(digests: Mapping[tuple[int, int], str]) -> list[Divergence]:
    """Ranks whose admissions differ, out of the plugin's own digests.

    Args:
        digests: (PP rank, admissions so far) -> digest over them.
    """
    reference = min((rank for rank, _ in digests), default=0)
    found: dict[int, Divergence] = {}
    for (rank, admissions), digest in sorted(digests.items()):
        other = digests.get((reference, admissions), digest)
        if other != digest and rank not in found:
            found[rank] = Divergence(
                rank,
                reference,
                admissions,
                0.0,
                f"digest {digest} over {admissions} admissions",
                f"digest {other}",
                lines=2,
                at_end=False,
            )
    return list(found.values())


class RankLines:
    """Batch lines of one PP rank: a code and a time a line."""

    def __init__(self) -> None:
        self.codes = array("Q")
        self.seconds = array("d")
        self.dropped = 0
        #: Ordinal of the first kept line, the same on all ranks for the same batch.
        self.first = 0

    def drop(self, number: int) -> None:
        """Forget the oldest lines."""
        del self.codes[:number]
        del self.seconds[:number]
        self.dropped += number
        self.first += number


def prefill_code(new_seqs: int, new_tokens: int, running: int) -> int:
    """Code of a prefill line; that of a decode line is its ``#running-req``."""
    parts = (new_seqs & 0xFFF) << 48 | (new_tokens & 0xFFFFFF) << 24
    return 1 << 60 | parts | running & 0xFFFFFF


def describe(code: int) -> str:
    """A code in SGLang's words."""
    running = code & 0xFFFFFF
    if not code >> 60:
        return f"Decode batch, #running-req: {running}"
    return (
        f"Prefill batch, #new-seq: {code >> 48 & 0xFFF}, "
        f"#new-token: {code >> 24 & 0xFFFFFF}, #running-req: {running}"
    )


class LockStep:
    """Compares the ranks of one pipeline as their lines come in."""

    def __init__(self) -> None:
        self.ranks: dict[int, RankLines] = {}
        self.compared = 0
        self.lost_lines = 0
        self.unmatched = 0
        self.divergences: dict[int, Divergence] = {}
        self._gone: set[int] = set()

    def rank(self, pp_rank: int) -> RankLines:
        """Lines of a rank, made on first use."""
        return self.ranks.setdefault(pp_rank, RankLines())

    def trim(self) -> None:
        """Compare and forget what every rank has; bounds the memory."""
        if len(self.ranks) < 2:
            for lines in self.ranks.values():
                lines.drop(max(len(lines.codes) - _KEEP, 0))
            return
        whole = min(
            len(lines.codes)
            for rank, lines in self.ranks.items()
            if rank not in self._gone
        )
        if whole >= _TRIM:
            self._compare(whole, final=False)
        for lines in self.ranks.values():
            over = len(lines.codes) - _KEEP
            if over > 0:
                self.unmatched += over
                lines.drop(over)

    def finish(self) -> None:
        """Compare what is left."""
        if len(self.ranks) > 1:
            self._compare(
                max(len(lines.codes) for lines in self.ranks.values()), final=True
            )

    def ends(self) -> dict[int, int]:
        """Batch lines that each rank printed."""
        return {
            rank: lines.dropped + len(lines.codes) for rank, lines in self.ranks.items()
        }

    def _compare(self, whole: int, final: bool) -> None:
        reference = min(self.ranks)
        base = self.ranks[reference]
        # What one rank had to forget, the others cannot be compared on.
        first = max(lines.first for lines in self.ranks.values())
        for lines in self.ranks.values():
            lines.drop(min(first - lines.first, len(lines.codes)))
        if any(lines.first != first for lines in self.ranks.values()):
            return
        used: dict[int, tuple[int, int]] = {}
        for rank, lines in self.ranks.items():
            if rank in self._gone:
                lines.drop(len(lines.codes))
            elif rank != reference:
                used[rank] = self._walk(reference, rank, base, lines, whole, final)
        # Ranks that lost lines are aligned again from a common place.
        base_used = min((ours for ours, _ in used.values()), default=whole)
        for rank, (ours, theirs) in used.items():
            self.ranks[rank].drop(max(theirs - (ours - base_used), 0))
        base.drop(base_used)
        for lines in self.ranks.values():
            lines.first = base.first
        self.compared += base_used

    def _walk(
        self,
        reference: int,
        rank: int,
        base: RankLines,
        lines: RankLines,
        whole: int,
        final: bool,
    ) -> tuple[int, int]:
        """Lines of both that were compared, up to a divergence."""
        a, b = base.codes, lines.codes
        i = j = 0
        # Keep a tail back while more may come, for a gap near the end.
        stop = whole if final else whole - _RESYNC_LINES - _LONGEST_GAP
        while i < min(len(a), stop) and j < len(b):
            step = min(1024, stop - i, len(a) - i, len(b) - j)
            if a[i : i + step] == b[j : j + step]:
                i, j = i + step, j + step
                continue
            while a[i] == b[j]:
                i, j = i + 1, j + 1
            gap = _gap(a, b, i, j, _TAIL_LINES if final else _RESYNC_LINES)
            left, right = gap or (1, 1)
            if gap is None or (left and right):
                self._differs(reference, rank, lines, i, j, a[i], gap is None)
                if gap is None:
                    self._gone.add(rank)
                    return len(a), len(b)
            else:
                self.lost_lines += left + right
            i, j = i + left, j + right
        return i, j

    def _differs(
        self,
        reference: int,
        rank: int,
        lines: RankLines,
        i: int,
        j: int,
        expected: int,
        for_good: bool,
    ) -> None:
        """Note that a rank printed another line than the reference."""
        first = self.divergences.get(rank)
        rest = len(lines.codes) - j
        if first is not None:
            self.divergences[rank] = replace(
                first, lines=first.lines + (rest if for_good else 1)
            )
            return
        self.divergences[rank] = Divergence(
            rank,
            reference,
            lines.dropped + j,
            lines.seconds[j],
            describe(lines.codes[j]),
            describe(expected),
            rest if for_good else 1,
            for_good and rest <= _TAIL_LINES + 2,
        )


def _gap(
    a: "array[int]", b: "array[int]", i: int, j: int, least: int
) -> tuple[int, int] | None:
    """Lines to skip on either side so that the sequences agree again."""
    for total in range(1, _LONGEST_GAP + 1):
        for skip in sorted(range(total + 1), key=lambda n: min(n, total - n)):
            left = a[i + skip : i + skip + _RESYNC_LINES]
            right = b[j + total - skip : j + total - skip + _RESYNC_LINES]
            whole = min(len(left), len(right))
            if whole >= least and left[:whole] == right[:whole]:
                return skip, total - skip
    return None
