"""From the records of a run to figures: pairs, stage times, the law beside the laps."""

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean, median
from typing import Any

from sglang_ppfix.ab.compare import Comparison, Window

Record = dict[str, Any]


def read(path: Path) -> list[Record]:
    """Records of one file; a line that was cut off ends the file."""
    records = []
    for line in path.read_text().splitlines():
        try:
            records.append(json.loads(line))
        except ValueError:
            break
    return records


def summarise(records: Iterable[Record]) -> dict[str, Any]:
    """Everything that the report shows of one case.

    Windows with errors count nowhere but in ``failed_windows``.
    """
    records = list(records)
    case = next(r for r in records if r["kind"] == "case")
    windows = [r for r in records if r["kind"] == "window"]
    good = [w for w in windows if not w["errors"]]
    facts = {key: value for key, value in case.items() if key != "kind"}
    return {
        "schema_version": 1,
        **facts,
        "windows": len(windows),
        "failed_windows": len(windows) - len(good),
        "windows_with_differing_digests": sum(map(_ranks_differ, windows)),
        "loads": list(_loads(good)),
        "greedy": [
            {key: r[key] for key in ("clients", "arm", "identical", "first_difference")}
            for r in records
            if r["kind"] == "greedy"
        ],
        "stages": list(_stages(good, facts)),
    }


def _ranks_differ(window: Record) -> bool:
    """Whether ranks that report the same iteration report different decisions."""
    said: dict[int, set[str]] = defaultdict(set)
    for rank in window["ranks"]:
        if "digest" in rank:
            said[rank["iteration"]].add(rank["digest"])
    return any(len(digests) > 1 for digests in said.values())


def _loads(windows: list[Record]) -> Iterable[Record]:
    """Per load and number of clients: every arm, and its pairs with stock."""
    groups: dict[tuple[str, int], dict[str, dict[int, Record]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for w in windows:
        if w["load"] != "greedy" and w["round"] >= 0:
            groups[w["load"], w["clients"]][w["arm"]][w["round"]] = w
    for (load, clients), arms in sorted(groups.items()):
        stock = arms.get("stock", {})
        yield {
            "load": load,
            "clients": clients,
            "arms": {name: _arm(name, of, stock) for name, of in arms.items()},
        }


def _arm(name: str, windows: dict[int, Record], stock: dict[int, Record]) -> Record:
    tok_s = [w["tok_s"] for w in windows.values()]
    latency = [w["latency_mean_s"] for w in windows.values()]
    arm: Record = {
        "cap": next(iter(windows.values()))["cap"],
        "tok_s": [tok_s[0] if len(tok_s) == 1 else median(tok_s)],
        "tok_s_min_max": [min(tok_s), max(tok_s)],
        "latency_mean_s": round(fmean(latency), 3),
        "slots_filled": round(
            median(w["state"]["filled"] for w in windows.values()), 2
        ),
        "largest": round(median(w["state"]["largest"] for w in windows.values()), 2),
    }
    arm["tok_s"] = arm["tok_s"][0]
    rounds = [r for r in sorted(windows) if r in stock]
    if name != "stock" and rounds:
        pairs = Comparison(
            tuple((_window(stock[r]), _window(windows[r])) for r in rounds)
        )
        interval = pairs.ci95
        arm["over_stock"] = {
            "ratio": round(pairs.ratio, 4),
            "ci95": None if interval is None else [round(x, 4) for x in interval],
            "pairs": [round(ratio, 4) for ratio in pairs.ratios],
            "verdict": pairs.verdict(),
        }
    return arm


def _window(record: Record) -> Window:
    return Window(record["arm"], record["tok_s"], float(record["clients"]))


def _stages(windows: list[Record], facts: Record) -> Iterable[Record]:
    """Stage times and laps of bursts, beside the law's lap for the same stage times.

    From windows in which the stage clock runs (not ``stock``), and where all clients
    have a row.
    """
    pp, rows = facts["pp"], facts["rows"]
    groups: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for w in windows:
        if w["load"] == "burst" and w["clients"] <= rows and len(w["ranks"]) == pp:
            groups[w["arm"], w["clients"]].append(w)
    hop = None
    for (arm, clients), of in sorted(groups.items(), key=lambda g: (g[0][1], g[0][0])):
        if arm in ("stock", "static cap"):
            continue
        # The first request of a burst often goes ahead alone, under stock: 1 and 7.
        size = round(median(w["state"]["largest"] for w in of))
        times = _stage_ms(of, size, pp)
        if times is None:
            continue
        lap = median(w["ranks"][0]["lap_s"] for w in of) * 1e3
        if clients == 1:
            hop = (lap - sum(times)) / pp if hop is None else hop
        filled = round(median(w["state"]["filled"] for w in of), 2)
        alone = sum(times) + pp * (hop or 0.0)
        busiest = max(times) * filled
        yield {
            "arm": arm,
            "clients": clients,
            "size": size,
            "slots_filled": filled,
            "decode_ms": [round(t, 3) for t in times],
            "lap_ms": round(lap, 2),
            "hop_ms": None if hop is None else round(hop, 3),
            "law_lap_ms": round(max(alone, busiest), 2),
            "cpu_filled_ms": round(
                max(
                    median(w["ranks"][rank]["cpu_filled_s"] for w in of)
                    for rank in range(pp)
                )
                * 1e3,
                3,
            ),
        }


def _stage_ms(windows: list[Record], size: int, pp: int) -> list[float] | None:
    """Median decode time of every stage at a micro-batch size, ms."""
    times = []
    for rank in range(pp):
        known = [
            w["ranks"][rank]["decode_ms"][str(size)]
            for w in windows
            if str(size) in w["ranks"][rank].get("decode_ms", {})
        ]
        if not known:
            return None
        times.append(median(known))
    return times
