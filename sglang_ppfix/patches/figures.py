"""Results of the benchmarks as tables for a pull request."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from . import PatchSetError

_NOTE = (
    "Measured with a plugin that takes the same decisions as this series (the two are "
    "compared decision by decision on random loads)."
)


class Figures(NamedTuple):
    """What the results say.

    Attributes:
        speed: one text with a table per result.
        ratios: all throughput ratios, after over before.
        compared: requests whose outputs were compared, with and without.
        identical: of these, how many put out the same.
    """

    speed: list[str]
    ratios: list[float]
    compared: int
    identical: int


class _Result(NamedTuple):
    """One result: its text, its ratios, and (compared, identical) requests."""

    text: str
    ratios: list[float]
    outputs: list[tuple[int, int]]


def read_figures(folder: Path) -> Figures:
    """Every result of a kind that is known; others are left to their own pages.

    Raises:
        PatchSetError: a file is not JSON, or lacks what its kind has.
    """
    results: list[_Result] = []
    for path in sorted(folder.glob("*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if _is_lab(content):
                results.append(_lab(content))
            elif _is_one_gpu(content):
                results.append(_one_gpu(content))
        except (ValueError, KeyError, TypeError) as error:
            raise PatchSetError(f"{path} is not a result: {error!r}") from error
    return Figures(
        [_NOTE, *(result.text for result in results)] if results else [],
        [ratio for result in results for ratio in result.ratios],
        sum(compared for result in results for compared, _ in result.outputs),
        sum(identical for result in results for _, identical in result.outputs),
    )


def _is_lab(content: Any) -> bool:
    return isinstance(content, dict) and "lab" in str(content.get("what"))


def _is_one_gpu(content: Any) -> bool:
    return isinstance(content, dict) and {"case", "loads", "placement"} <= set(content)


def _lab(content: dict[str, Any]) -> _Result:
    server = content["configuration"]
    machine = content["machine"]
    head = (
        f"**Emulated stage time on CPU**, not a GPU figure: real SGLang "
        f"{machine['sglang']}, `--pp-size {server['pp_size']} --max-running-requests "
        f"{server['max_running_requests']}"
        + (
            f" --pp-async-batch-depth {server['async_depth']}"
            if server["async_depth"]
            else ""
        )
        + f"`, stage time {_profile(server['profile'])}, arrivals: {server['arrival']}."
    )
    rows = [
        (
            str(row["clients"]),
            f"{row['stock_tok_s']:.1f}",
            f"{row['plugin_tok_s']:.1f}",
            f"{row['ratio']:.2f}",
            "yes" if row["outputs_identical"] else "no",
        )
        for row in content["rows"]
        if row["ratio"] is not None
    ]
    told = [row for row in content["rows"] if row["ratio"] is not None]
    # A row says only whether all of its outputs are identical.
    same = [
        (row["clients"], row["clients"] if row["outputs_identical"] else 0)
        for row in told
    ]
    columns = ("clients", "before, tok/s", "after, tok/s", "ratio", "outputs identical")
    text = f"{head}\n\n{_table(columns, rows)}"
    return _Result(text, [row["ratio"] for row in told], same)


def _profile(profile: dict[str, Any]) -> str:
    return str(profile.get("name") or profile)


def _one_gpu(content: dict[str, Any]) -> _Result:
    machine = content["machine"]
    says = content["shape"]["says"] if content["shape"] else content["case"]
    head = f"{says}; {content['placement']}; SGLang {machine.get('sglang', '?')}."
    rows, ratios = [], []
    for load in content["loads"]:
        stock, even = load["arms"].get("stock"), load["arms"].get("balanced")
        if stock is None or even is None or "over_stock" not in even:
            continue
        pairs = even["over_stock"]
        interval = pairs["ci95"]
        ratios.append(pairs["ratio"])
        rows.append(
            (
                load["load"],
                str(load["clients"]),
                f"{stock['tok_s']:.1f}",
                f"{even['tok_s']:.1f}",
                f"{pairs['ratio']:.2f}",
                "-" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}",
            )
        )
    same = [
        (run["clients"], run["identical"])
        for run in content["greedy"]
        if run["arm"] == "balanced"
    ]
    columns = (
        *("load", "clients", "before, tok/s", "after, tok/s"),
        *("ratio of pairs in one server", "95 %"),
    )
    return _Result(f"{head}\n\n{_table(columns, rows)}", ratios, same)


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [columns, ["---"] * len(tuple(columns)), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
