"""What is measured, in which order."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """One server and the loads it gets.

    Attributes:
        name: of the case.
        shape: name in ``models.SHAPES``; ``None`` is the lab's toy model on the CPU.
        pp: stages.
        rows: ``max_running_requests``.
        clients: burst sizes, the most telling first: time may run out.
        output_tokens: tokens of every request of a burst.
    """

    name: str
    shape: str | None
    pp: int
    rows: int
    clients: tuple[int, ...]
    output_tokens: int = 64

    @property
    def stock_cap(self) -> int:
        """The cap that SGLang derives (and, with these rows, the plugin as well)."""
        return max(self.rows // self.pp, 1)

    def static_cap(self, clients: int) -> int:
        """The fixed cap that spreads ``clients`` evenly over the stages."""
        return min(max(-(-clients // self.pp), 1), self.stock_cap)


_SIZES = (8, 16, 4, 32, 24, 2, 64, 1)

CASES = {
    case.name: case
    for case in (
        Case("steep-pp4", "steep", 4, 32, _SIZES),
        Case("steep-pp8", "steep16", 8, 64, (8, 16, 32, 4, 64, 1, 2)),
        Case("dense-pp4", "dense", 4, 32, (8, 16, 32, 4, 64, 1)),
        Case("kimi-pp4", "kimi", 4, 32, (8, 16, 32, 4, 64, 1)),
        Case("steep-pp2", "steep", 2, 16, (8, 4, 16, 12, 2, 32, 1)),
        Case("dense-pp2", "dense", 2, 16, (8, 4, 16, 2, 1)),
        Case("toy-pp2", None, 2, 8, (4, 2, 8, 1), output_tokens=12),
        Case("toy-pp4", None, 4, 32, (8, 4, 32, 1), output_tokens=12),
    )
}
