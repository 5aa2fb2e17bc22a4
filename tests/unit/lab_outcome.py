"""An outcome of the lab without a server: forwards of a ring, by arithmetic."""

from collections.abc import Sequence
from pathlib import Path

from sglang_ppfix.lab.config import LabConfig
from sglang_ppfix.lab.experiment import Experiment, Outcome, Run
from sglang_ppfix.lab.load import Lengths, RequestResult
from sglang_ppfix.lab.measure import measure
from sglang_ppfix.lab.oracle import expected_tokens
from sglang_ppfix.lab.profile_file import stage_profile
from sglang_ppfix.lab.trace import Forward

PP = 4
TOKENS = 6


def ring(
    sizes: list[int], begin: float, step_s: float, ids: Sequence[str] = "abcdefgh"
) -> list[list[Forward]]:
    """A prefill lap and decode laps of slots that hold ``sizes``, per rank."""
    traces: list[list[Forward]] = [[] for _ in range(PP)]
    lap_s = PP * step_s
    for lap in range(TOKENS):
        number = 0
        for slot, size in enumerate(sizes):
            rids = tuple(ids[number : number + size])
            number += size
            for rank in range(PP):
                start = begin + lap * lap_s + (slot + rank) * step_s
                mode = "decode" if lap else "prefill"
                traces[rank].append(
                    Forward(rank, slot, mode, size, begin, start, start + step_s, rids)
                )
    return traces


def outcome(
    arms: tuple[str, ...] = ("stock", "plugin"),
    clients: tuple[int, ...] = (1, 4, 8),
    plugin_output: int | None = None,
) -> Outcome:
    """Stock in one slot, plugin in as many as there are; every token right.

    Args:
        arms: which were run.
        clients: rows.
        plugin_output: a first token to put into the plugin's outputs instead.
    """
    experiment = Experiment(
        server=LabConfig(stage_profile("20+10b", PP)),
        clients=clients,
        prompt=Lengths(4, 4),
        output=Lengths(TOKENS, TOKENS),
        arms=arms,
    )
    found = Outcome(experiment)
    for row in clients:
        for number, arm in enumerate(arms):
            begin = 100.0 * (number + 1)
            spread = min(row, PP) if arm == "plugin" else 1
            sizes = [row // spread] * spread
            requests = experiment.load(row).requests
            ids = [request.rid for request in requests]
            traces = ring(sizes, begin, (20 + 10 * max(sizes)) / 1e3, ids)
            end = max(forward.end for forward in traces[-1])
            results = []
            for index, request in enumerate(requests):
                output = expected_tokens(request.prompt, TOKENS, PP)
                if arm == "plugin" and index == 0 and plugin_output is not None:
                    output[0] = plugin_output
                results.append(
                    RequestResult(
                        request, begin, finished=end, output=output, finish="length"
                    )
                )
            found.runs.append(
                Run(
                    arm,
                    0,
                    row,
                    begin,
                    end,
                    results,
                    traces,
                    measure(results, traces, PP),
                )
            )
    return found


def write_trace(folder: Path, rank: int, lines: list[str]) -> None:
    """A trace file as a rank writes it."""
    (folder / f"rank{rank}.jsonl").write_text("".join(lines))
