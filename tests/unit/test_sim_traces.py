"""Trace files of SGLang's and vLLM's benchmarks, Mooncake, BurstGPT, ShareGPT."""

import json
from pathlib import Path

import pytest

from sglang_ppfix.sim import Server, even_profile, simulate
from sglang_ppfix.sim.traces import TraceError, read_trace


def _file(folder: Path, text: str, name: str = "trace.jsonl") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_mooncake(tmp_path: Path) -> None:
    """Times are milliseconds, and start at 0. Breaks when taken for seconds."""
    lines = [
        {"timestamp": 3000, "input_length": 20, "output_length": 5, "hash_ids": [1]},
        {"timestamp": 1500, "input_length": 30, "output_length": 7, "hash_ids": [1, 2]},
    ]
    load = read_trace(_file(tmp_path, "\n".join(map(json.dumps, lines))))
    assert list(load.prompts) == [30, 20]
    assert list(load.outputs) == [7, 5]
    assert load.arrivals == [0.0, 1.5]
    faster = read_trace(tmp_path / "trace.jsonl", speed=3.0)
    assert faster.arrivals == [0.0, 0.5]


def test_burstgpt(tmp_path: Path) -> None:
    """Failed requests have no answer and are left out."""
    text = (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n"
        "45,GPT-4,10,0,10,API log\n"
        "118,ChatGPT,100,30,130,Conversation log\n"
    )
    load = read_trace(_file(tmp_path, text, "burstgpt.csv"))
    assert list(load.prompts) == [472, 100]
    assert load.arrivals == [0.0, 113.0]


@pytest.mark.parametrize("lines", [True, False])
def test_detailed_bench_results(tmp_path: Path, lines: bool) -> None:
    """SGLang appends one JSON line per run (the last counts), vLLM writes one file.
    They say how long requests were, not when they came."""
    result = {"input_lens": [10, 20, 30], "output_lens": [4, 0, 6], "ttfts": []}
    older = {"input_lens": [1], "output_lens": [1]}
    text = json.dumps(result)
    if lines:
        text = json.dumps(older) + "\n" + text + "\n"
    path = _file(tmp_path, text)
    with pytest.raises(TraceError, match="no arrival times; give a rate or clients"):
        read_trace(path)
    load = read_trace(path, clients=2)
    assert list(load.prompts) == [10, 30]
    assert load.clients == 2
    assert len(read_trace(path, rate=5.0, seed=1).arrivals or []) == 2


def test_sharegpt(tmp_path: Path) -> None:
    """Text, so token counts are estimated; the first two turns count."""
    talk = {
        "conversations": [
            {"from": "human", "value": "x" * 40},
            {"from": "gpt", "value": "y" * 80},
        ]
    }
    lone = {"conversations": [{"from": "human", "value": "z"}]}
    load = read_trace(_file(tmp_path, json.dumps([talk, lone, talk])), clients=1)
    assert list(load.prompts) == [10, 10]
    assert list(load.outputs) == [20, 20]


@pytest.mark.parametrize("text", ["", "hello", "[1, 2]", '{"a": 1}', "[]"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    """Breaks when a file of no known format gets through, or ends in a traceback."""
    with pytest.raises(TraceError, match=r"trace\.jsonl: (no known format|holds no)"):
        read_trace(_file(tmp_path, text))


def test_a_trace_runs(tmp_path: Path) -> None:
    """Breaks when what is read cannot be simulated."""
    lines = [
        json.dumps({"timestamp": 40 * n, "input_length": 50, "output_length": 9})
        for n in range(30)
    ]
    load = read_trace(_file(tmp_path, "\n".join(lines)), requests=20)
    outcome = simulate(Server(4), even_profile(4, 4e-3, 1e-3), load)
    assert [request.tokens for request in outcome.requests] == [9] * 20
