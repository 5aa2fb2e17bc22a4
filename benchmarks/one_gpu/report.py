"""Records of runs to results, pictures and the tables of ``docs/one-gpu.md``.

    python benchmarks/one_gpu/report.py out/one_gpu/*.jsonl

Writes ``benchmarks/results/one_gpu_CASE.json`` and ``docs/img/one-gpu-CASE.png``, and
replaces what stands between ``<!-- CASE -->`` and ``<!-- end CASE -->`` in the page.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from prediction import predictions
from summary import read, summarise

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "one-gpu.md"
PICTURES = ROOT / "docs" / "img"
_ARMS = ("stock", "balanced", "static cap", "auto")
_COLOURS = {
    "stock": "#6b7280",
    "balanced": "#0f766e",
    "static cap": "#b45309",
    "auto": "#7c3aed",
}


def main() -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", nargs="+", type=Path)
    args = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    PICTURES.mkdir(exist_ok=True)
    for path in args.records:
        summary = summarise(read(path))
        summary["simulated_tok_s"] = predictions(summary)
        name = summary["case"]
        if summary["shape"] is None:
            print(table(summary))
            continue
        result = RESULTS / f"one_gpu_{name.replace('-', '_')}.json"
        result.write_text(json.dumps(summary, indent=1) + "\n")
        picture(summary, PICTURES / f"one-gpu-{name}.png")
        _put(name, section(summary))
        print(f"{name}: {summary['windows']} windows")
    return 0


def section(summary: dict[str, Any]) -> str:
    """Markdown of one case."""
    shape = ", ".join(
        f"{key} {value}" for key, value in summary["shape"].items() if key != "says"
    )
    machine = summary["machine"]
    parts = [
        (
            f"{summary['shape']['says']} ({shape}); {summary['placement']}; SGLang "
            f"{machine['sglang']}, torch {machine['torch']}; `max_running_requests` "
            f"{summary['rows']}, stock's cap {summary['stock_cap']}, "
            f"{summary['output_tokens']} output tokens a request, {summary['windows']} "
            f"windows, {summary['failed_windows']} with errors."
        ),
        table(summary),
        f"![Throughput and ratio](img/one-gpu-{summary['case']}.png)",
        _greedy(summary),
        _stages(summary),
        _simulated(summary),
    ]
    return "\n\n".join(part for part in parts if part)


def table(summary: dict[str, Any]) -> str:
    """Throughput of every arm, and ratios with stock."""
    lines = [
        (
            "| load | C | stock tok/s | balanced / stock | 95 % interval | pairs | "
            "static cap / stock | auto / stock | "
            "slots filled, largest: stock | balanced |"
        ),
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for load in summary["loads"]:
        arms = load["arms"]
        if "stock" not in arms:
            continue
        ours = arms.get("balanced", {})
        pairs = ours.get("over_stock", {})
        interval = pairs.get("ci95")
        lines.append(
            "| "
            + " | ".join(
                (
                    load["load"],
                    str(load["clients"]),
                    f"{arms['stock']['tok_s']:.1f}",
                    f"**{pairs['ratio']:.2f}**" if pairs else "",
                    f"{interval[0]:.2f} to {interval[1]:.2f}" if interval else "",
                    " ".join(f"{ratio:.2f}" for ratio in pairs.get("pairs", ())),
                    _ratio(arms, "static cap"),
                    _ratio(arms, "auto"),
                    _filling(arms["stock"]),
                    _filling(ours),
                )
            )
            + " |"
        )
    return "\n".join(lines)


def _ratio(arms: dict[str, Any], name: str) -> str:
    pairs = arms.get(name, {}).get("over_stock")
    return f"{pairs['ratio']:.2f}" if pairs else ""


def _filling(arm: dict[str, Any]) -> str:
    return f"{arm['slots_filled']:.1f}, {arm['largest']:.1f}" if arm else ""


def _greedy(summary: dict[str, Any]) -> str:
    if not summary["greedy"]:
        return ""
    lines = [
        (
            "Temperature 0, the same requests under every arm; identical to the first "
            "stock run:"
        ),
        "",
        "| C | arm | identical | tokens before the first difference |",
        "| --- | --- | --- | --- |",
    ]
    for entry in summary["greedy"]:
        early = ", ".join(map(str, entry["first_difference"][:6]))
        lines.append(
            f"| {entry['clients']} | {entry['arm']} | "
            f"{entry['identical']} of {entry['clients']} | {early} |"
        )
    return "\n".join(lines)


def _stages(summary: dict[str, Any]) -> str:
    if not summary["stages"]:
        return ""
    lines = [
        (
            "Stage times and laps as the plugin observes them (`observe`: stock "
            "decides, with the stage clock on):"
        ),
        "",
        (
            "| arm | C | b | slots filled | t(b) per stage, ms | lap, ms | "
            "law's lap, ms | CPU per filled slot, ms |"
        ),
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for entry in summary["stages"]:
        times = " ".join(f"{time:.1f}" for time in entry["decode_ms"])
        lines.append(
            f"| {entry['arm']} | {entry['clients']} | {entry['size']} | "
            f"{entry['slots_filled']:.1f} | {times} | {entry['lap_ms']:.1f} | "
            f"{entry['law_lap_ms']:.1f} | {entry['cpu_filled_ms']:.1f} |"
        )
    hop = next((e["hop_ms"] for e in summary["stages"] if e["hop_ms"]), None)
    if hop is not None:
        lines += ["", f"Hop, from the lap of one request: {hop:.2f} ms a stage."]
    return "\n".join(lines)


def _simulated(summary: dict[str, Any]) -> str:
    simulated = summary["simulated_tok_s"]
    if not simulated:
        return ""
    bursts = {
        load["clients"]: load["arms"]["balanced"]["tok_s"]
        for load in summary["loads"]
        if load["load"] == "burst" and "balanced" in load["arms"]
    }
    clients = [c for c in simulated if c in bursts]
    rows = (
        ["C", *map(str, clients)],
        ["---"] * (len(clients) + 1),
        ["measured", *(f"{bursts[c]:.0f}" for c in clients)],
        ["simulated", *(f"{simulated[c]:.0f}" for c in clients)],
    )
    return (
        "`balanced` as the simulator has it with these stage times and this hop, "
        "tokens a second:\n\n"
        + "\n".join("| " + " | ".join(row) + " |" for row in rows)
    )


def picture(summary: dict[str, Any], path: Path) -> None:
    """Throughput of the arms and their ratios with stock, over C."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    bursts = [load for load in summary["loads"] if load["load"] == "burst"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), dpi=130)
    for arm in _ARMS:
        having = [load for load in bursts if arm in load["arms"]]
        if not having:
            continue
        clients = [load["clients"] for load in having]
        tok_s = [load["arms"][arm]["tok_s"] for load in having]
        left.plot(clients, tok_s, "o-", ms=4, color=_COLOURS[arm], label=arm)
        paired = [load for load in having if "over_stock" in load["arms"][arm]]
        if paired:
            over = [load["arms"][arm]["over_stock"] for load in paired]
            right.errorbar(
                [load["clients"] for load in paired],
                [pairs["ratio"] for pairs in over],
                yerr=[
                    [pairs["ratio"] - min(pairs["pairs"]) for pairs in over],
                    [max(pairs["pairs"]) - pairs["ratio"] for pairs in over],
                ],
                fmt="o-",
                ms=4,
                capsize=3,
                color=_COLOURS[arm],
                label=f"{arm} / stock",
            )
    right.axhline(1.0, color=_COLOURS["stock"], lw=1)
    titles = ((left, "output tokens a second"), (right, "ratio; bars: all pairs"))
    for axes, title in titles:
        axes.set_xscale("log", base=2)
        axes.set_xticks([load["clients"] for load in bursts])
        axes.get_xaxis().set_major_formatter(mpl.ticker.ScalarFormatter())
        axes.set_xlabel("requests in a burst, C")
        axes.set_title(title, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    left.set_ylim(bottom=0)
    figure.suptitle(f"{summary['shape']['says']}; {summary['placement']}", fontsize=9)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def _put(name: str, text: str) -> None:
    """Replace the section of a case in the page."""
    page = PAGE.read_text()
    marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
    if not marked.search(page):
        sys.exit(f"{PAGE.name}: no <!-- {name} --> and <!-- end {name} -->")
    PAGE.write_text(marked.sub(lambda m: f"{m[1]}\n{text}\n\n{m[2]}", page))


if __name__ == "__main__":
    sys.exit(main())
