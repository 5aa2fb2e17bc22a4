"""Rows of a sweep as a table."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table

_HEADS = {
    "policy": "policy",
    "clients": "clients",
    "tok_s": "tok/s",
    "range": "low - high",
    "reported": "reported",
    "slots": "slots",
    "largest": "largest",
    "ttft_ms": "TTFT ms",
    "tpot_ms": "TPOT ms",
    "tpot_p99_ms": "p99",
    "bubble": "bubble",
    "retractions": "retracted",
    "lost": "lost",
}


def rows_table(rows: Sequence[dict[str, Any]], title: str) -> Table:
    """One line per row; columns that are the same or empty in all rows are left out.

    Args:
        rows: as :func:`sglang_ppfix.sim.sweep.run_cases` makes them.
        title: above the table.
    """
    table = Table(title=title, title_justify="left")
    shown = [{**row, "range": _range(row)} for row in rows]
    labels = [
        key
        for key in shown[0]
        if key not in _HEADS
        and not key.startswith(("tok_s_", "ttft_p", "slots_"))
        and key not in ("latency_ms", "load")
    ]
    columns = ["policy", "clients", *labels, *list(_HEADS)[2:]]
    for column in columns:
        values = [row.get(column) for row in shown]
        varies = len({str(value) for value in values}) > 1
        always = column in ("policy", "clients", "tok_s", "slots", "tpot_ms", "bubble")
        if always or (varies and any(v not in (None, "", 0) for v in values)):
            table.add_column(
                _HEADS.get(column, column),
                justify="left" if column == "policy" else "right",
            )
        else:
            for row in shown:
                row.pop(column, None)
    for row in shown:
        table.add_row(
            *(_text(row[c]) if c in row else "" for c in columns if _in(c, shown))
        )
    return table


def _in(column: str, rows: Sequence[dict[str, Any]]) -> bool:
    return any(column in row for row in rows)


def _range(row: dict[str, Any]) -> str:
    low, high = row.get("tok_s_low"), row.get("tok_s_high")
    return "" if low is None or low == high else f"{low:g} - {high:g}"


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"
    return str(value)
