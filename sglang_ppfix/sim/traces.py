"""Loads out of trace files: which requests came when, and how long they were.

Formats: Mooncake's JSONL, BurstGPT's CSV (vLLM's ``burstgpt`` dataset), the detailed
results of SGLang's and vLLM's serving benchmarks, and ShareGPT's JSON (both benchmarks'
``sharegpt`` dataset).
"""

import csv
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from .load import Load

# ShareGPT holds text. Four characters a token is the usual rule of thumb for English.
_CHARACTERS_PER_TOKEN = 4

Rows = list[tuple[float | None, int, int]]
"""(arrival in seconds or None, prompt tokens, output tokens)"""


class TraceError(ValueError):
    """A trace file that cannot be used; the text names it and says why."""


def read_trace(
    path: Path,
    *,
    requests: int | None = None,
    rate: float | None = None,
    clients: int | None = None,
    speed: float = 1.0,
    seed: int = 0,
) -> Load:
    """A load out of a file.

    Args:
        path: the trace; its content tells the format.
        requests: take only the first so many.
        rate: arrivals a second at independent moments, instead of the file's.
        clients: a closed loop of so many clients, instead of the file's arrivals.
        speed: replay so many times as fast.
        seed: of ``rate``.

    Raises:
        TraceError: unreadable, of no known format, empty, or without arrival times
            where neither ``rate`` nor ``clients`` is given.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"trace {path}: cannot be read: {error}") from None
    rows = _parse(text, path)[:requests]
    if not rows:
        raise TraceError(f"trace {path}: holds no request")
    name = path.stem
    prompts = [max(prompt, 1) for _, prompt, _ in rows]
    outputs = [max(output, 1) for _, _, output in rows]
    if clients is not None:
        return Load(f"{name}, closed {clients}", prompts, outputs, clients=clients)
    if rate is not None:
        rng = np.random.default_rng(seed)
        gaps = rng.exponential(1.0 / rate, len(rows))
        return Load(f"{name}, {rate:g}/s", prompts, outputs, list(np.cumsum(gaps)))
    times = [time for time, _, _ in rows if time is not None]
    if len(times) < len(rows):
        raise TraceError(f"trace {path}: has no arrival times; give a rate or clients")
    order = sorted(range(len(rows)), key=lambda i: times[i])
    return Load(
        name,
        [prompts[i] for i in order],
        [outputs[i] for i in order],
        [(times[i] - times[order[0]]) / speed for i in order],
    )


def _parse(text: str, path: Path) -> Rows:
    for reader in (_csv, _whole_json, _json_lines):
        try:
            rows = reader(text)
        except (ValueError, KeyError, TypeError):
            continue
        if rows is not None:
            return rows
    raise TraceError(
        f"trace {path}: no known format (Mooncake JSONL, BurstGPT CSV, detailed result "
        "of SGLang's or vLLM's serving benchmark, ShareGPT JSON)"
    )


def _csv(text: str) -> Rows | None:
    if not text.lstrip().startswith("Timestamp,"):
        return None
    return [
        (
            float(row["Timestamp"]),
            int(row["Request tokens"]),
            int(row["Response tokens"]),
        )
        for row in csv.DictReader(text.lstrip().splitlines())
        # Failed requests have no answer.
        if int(row["Response tokens"]) > 0
    ]


def _whole_json(text: str) -> Rows | None:
    content = json.loads(text)
    if isinstance(content, dict):
        return _bench_result(content)
    if isinstance(content, list) and content and "conversations" in content[0]:
        return list(_sharegpt(content))
    return None


def _json_lines(text: str) -> Rows | None:
    lines = [json.loads(line) for line in text.splitlines() if line.strip()]
    if lines and "input_length" in lines[0]:
        return [
            (
                line["timestamp"] / 1e3 if "timestamp" in line else None,
                int(line["input_length"]),
                int(line["output_length"]),
            )
            for line in lines
        ]
    if lines and "input_lens" in lines[-1]:
        return _bench_result(lines[-1])
    return None


def _bench_result(content: dict[str, Any]) -> Rows | None:
    if "input_lens" not in content or "output_lens" not in content:
        return None
    starts: Iterable[float | None] = content.get("start_times") or [None] * len(
        content["input_lens"]
    )
    return [
        (start, int(prompt), int(output))
        for start, prompt, output in zip(
            starts, content["input_lens"], content["output_lens"], strict=True
        )
        if output > 0
    ]


def _sharegpt(content: list[dict[str, Any]]) -> Iterable[tuple[None, int, int]]:
    length: Callable[[dict[str, str]], int] = lambda turn: round(  # noqa: E731
        len(turn["value"]) / _CHARACTERS_PER_TOKEN
    )
    for entry in content:
        turns = entry["conversations"]
        if len(turns) >= 2:
            yield None, length(turns[0]), length(turns[1])
