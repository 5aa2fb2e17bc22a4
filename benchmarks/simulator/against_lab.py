"""The simulator against the lab: real SGLang's decisions, and its throughput.

    python benchmarks/simulator/against_lab.py run FOLDER      # SGLang, 20 minutes
    python benchmarks/simulator/against_lab.py collect FOLDER  # into lab_runs.json
    python benchmarks/simulator/against_lab.py compare

``run`` starts lab servers (emulated devices, real schedulers) and keeps what was seen,
``collect`` puts that into one file. ``compare`` needs no SGLang. Two questions:

- Decisions: given the turns in which requests arrived, does the simulator admit the
  same requests in the same slots in the same turns, to the last one?
- Throughput: given only the loads and the stage times, is it within 5 %? In a closed
  loop what a slot holds hangs on the milliseconds between the first arrivals, and with
  stock so does everything after: there the simulator is asked for a range of them.
"""

import argparse
import json
import os
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from sglang_ppfix.sim import CpuTimes, Load, Profile, Server, simulate
from sglang_ppfix.sim.curve import Affine
from sglang_ppfix.sim.policies import make
from sglang_ppfix.sim.replay import Admission, replay
from sglang_ppfix.sim.request import Request

PROBE = Path(__file__).parent / "probe"
RUNS_FILE = Path(__file__).parent / "lab_runs.json"
ARMS = {"stock": {"SGLANG_PPFIX": "0"}, "balanced": {"SGLANG_PPFIX": "1"}}
HOP_MS = 0.5
# CPU of a scheduler process on the machine of the lab: see ``compare``.
LAB_CPU = CpuTimes(idle=0.9e-3, launch=3.5e-3, process=2.0e-3, message=0.4e-3)
# From a token on the last stage's device to the client's next request in a scheduler.
CLIENT_S = 0.02
# Between the first requests of a closed loop, as they reach the scheduler.
STAGGERS_S = (0.0, 0.002, 0.005, 0.01, 0.02)


@dataclass(frozen=True)
class Setting:
    """A lab server."""

    name: str
    pp: int
    depth: int
    rows: int
    stage_ms: tuple[float, float]
    prefill_ms: tuple[float, float]
    chunk: int | None = None


@dataclass(frozen=True)
class Workload:
    """A load on it: lengths are uniform between the two figures."""

    name: str
    arrival: str
    clients: int
    requests: int
    prompt: tuple[int, int]
    output: tuple[int, int]
    rate: float | None = None


SETTINGS = {
    "pp2": Setting("pp2", 2, 0, 16, (60, 15), (60, 0.5)),
    "pp4": Setting("pp4", 4, 0, 32, (50, 15), (60, 0.5), 128),
    "pp4-depth2": Setting("pp4-depth2", 4, 2, 36, (50, 15), (60, 0.5)),
    "pp8": Setting("pp8", 8, 0, 64, (80, 20), (90, 0.5)),
}
BURST = Workload("burst", "burst", 13, 13, (16, 40), (10, 30))
DRAIN = Workload("drain", "burst", 16, 16, (16, 40), (3, 60))
CLOSED = Workload("closed", "closed", 9, 36, (16, 40), (8, 24))
POISSON = Workload("poisson", "poisson", 10, 40, (16, 40), (8, 24), 3.0)
CHUNKED = Workload("chunked", "burst", 6, 6, (100, 400), (8, 16))
CHUNKED_CLOSED = Workload("chunked-closed", "closed", 9, 30, (20, 400), (8, 24))
RUNS: list[tuple[str, tuple[Workload, ...]]] = [
    ("pp2", (BURST, CLOSED, POISSON, DRAIN)),
    ("pp4", (BURST, CLOSED, POISSON, DRAIN, CHUNKED, CHUNKED_CLOSED)),
    ("pp4-depth2", (BURST, CLOSED, POISSON, DRAIN)),
    ("pp8", (BURST, CLOSED, POISSON)),
]


def profile(setting: Setting) -> Profile:
    """The setting's stages for the simulator."""
    decode = Affine(setting.stage_ms[0] / 1e3, setting.stage_ms[1] / 1e3)
    prefill = Affine(setting.prefill_ms[0] / 1e3, setting.prefill_ms[1] / 1e3)
    stages = setting.pp
    return Profile(
        setting.name,
        (decode,) * stages,
        (prefill,) * stages,
        hop=HOP_MS / 1e3,
        way_back=HOP_MS / 1e3,
        cpu=LAB_CPU,
    )


def server(setting: Setting) -> Server:
    """The setting for the simulator."""
    return Server(
        setting.pp,
        setting.depth,
        setting.rows,
        chunked_prefill_size=setting.chunk or 8192,
    )


# --- run -----------------------------------------------------------------------------


def run(folder: Path, names: list[str]) -> None:
    """Run every workload on every arm of the settings; one file each."""
    for setting_name, workloads in RUNS:
        if names and setting_name not in names:
            continue
        for arm in ARMS:
            _run_server(folder, SETTINGS[setting_name], arm, workloads)


def _run_server(
    folder: Path, setting: Setting, arm: str, workloads: tuple[Workload, ...]
) -> None:
    from sglang_ppfix.lab.config import LabConfig
    from sglang_ppfix.lab.experiment import run_on, warm_up
    from sglang_ppfix.lab.profile_file import stage_profile
    from sglang_ppfix.lab.server import LabServer

    kept = folder / f"{setting.name}-{arm}"
    kept.mkdir(parents=True, exist_ok=True)
    stage = "{:g}+{:g}b".format(*setting.stage_ms)
    prefill = "{:g}+{:g}n".format(*setting.prefill_ms)
    config = LabConfig(
        profile=stage_profile(stage, setting.pp, prefill=prefill, hop_ms=HOP_MS),
        max_running_requests=setting.rows,
        async_depth=setting.depth,
        chunked_prefill_size=setting.chunk,
        kv_tokens=60_000,
        env={
            **ARMS[arm],
            "PPFIX_PROBE_FOLDER": str(kept.resolve()),
            "PYTHONPATH": os.pathsep.join(
                [str(PROBE), os.environ.get("PYTHONPATH", "")]
            ),
        },
    )
    with LabServer(config) as lab:
        warm_up(lab)
        for workload in workloads:
            load = _lab_load(workload)
            outcome = run_on(lab, load, arm)
            begin = outcome.begin
            document = {
                "setting": asdict(setting),
                "workload": asdict(workload),
                "arm": arm,
                "tok_s": outcome.measurement.tok_s,
                "requests": [
                    {
                        "rid": result.request.rid,
                        "prompt": len(result.request.prompt),
                        "output": result.request.output_tokens,
                        "sent": result.sent - begin,
                    }
                    for result in outcome.results
                ],
                "errors": outcome.measurement.errors,
                "wrong_tokens": outcome.measurement.wrong_tokens,
                "forwards": [
                    [f.slot, f.mode, f.requests, f.start - begin, f.end - begin]
                    for f in outcome.traces[0]
                ],
                "last_end": max(f.end for f in outcome.traces[-1]) - begin,
                "cpu": _cpu(lab),
            }
            (kept / f"{workload.name}.json").write_text(json.dumps(document))
            print(f"{setting.name} {arm} {workload.name}: {document['tok_s']:.1f}")


def _cpu(lab: Any) -> Any:
    state = lab.get("/server_info", timeout_s=10.0)
    return state.get("ppfix") if isinstance(state, dict) else None


def _lab_load(workload: Workload) -> Any:
    from sglang_ppfix.lab.load import Load as LabLoad
    from sglang_ppfix.lab.load import PlannedRequest

    rng = random.Random(workload.name)
    arrive, requests = 0.0, []
    for number in range(workload.requests):
        length = rng.randint(*workload.prompt)
        # No two prompts begin alike: the simulator knows no prefix cache.
        prompt = (5 + number, *(rng.randint(5, 505) for _ in range(length - 1)))
        if workload.rate is not None:
            arrive += rng.expovariate(workload.rate)
        requests.append(
            PlannedRequest(
                f"{workload.name}-{number:03}",
                prompt,
                rng.randint(*workload.output),
                arrive_s=arrive,
            )
        )
    return LabLoad(workload.arrival, workload.clients, tuple(requests))  # type: ignore[arg-type]


# --- compare -------------------------------------------------------------------------


def collect(folder: Path) -> None:
    """Put what ``run`` kept into :data:`RUNS_FILE`, as far as ``compare`` needs it."""
    runs = []
    for path in sorted(folder.glob("*/*.json")):
        document = json.loads(path.read_text())
        seen, arrivals = _turns(path.parent / "turns.jsonl", document)
        requests = document["requests"]
        first = min(request["sent"] for request in requests)
        runs.append(
            {
                "setting": document["setting"],
                "workload": document["workload"],
                "arm": document["arm"],
                "prompts": [request["prompt"] for request in requests],
                "outputs": [request["output"] for request in requests],
                "sent": [round(request["sent"] - first, 4) for request in requests],
                "seconds": round(document["last_end"] - first, 4),
                "wrong": len(document["errors"]) + len(document["wrong_tokens"]),
                "arrivals": arrivals,
                "admissions": seen,
            }
        )
    lines = ",\n".join(json.dumps(run, separators=(",", ":")) for run in runs)
    RUNS_FILE.write_text(f"[\n{lines}\n]\n")
    print(f"{len(runs)} runs in {RUNS_FILE}")


def compare() -> int:
    """Print a line per run; the exit status says whether all agree."""
    print("| server | arm | load | admissions | same | lab tok/s | simulated | error |")
    print("| --- | --- | --- | ---: | --- | ---: | ---: | ---: |")
    wrong = 0
    for run in json.loads(RUNS_FILE.read_text()):
        setting = Setting(**_tuples(run["setting"]))
        decided = decisions(run)
        seen = [(turn, slot, rids) for turn, slot, rids in run["admissions"]]
        lab = sum(run["outputs"]) / run["seconds"]
        simulated = simulated_tok_s(setting, run)
        error = median(simulated) / lab - 1
        wrong += seen != decided or not agrees(lab, simulated)
        same = "yes" if seen == decided else "NO"
        span = ""
        if len(simulated) > 1:
            span = f" ({min(simulated):.1f} to {max(simulated):.1f})"
        print(
            f"| {setting.name} | {run['arm']} | {run['workload']['name']} "
            f"| {len(seen)} | {same} | {lab:.1f} | {median(simulated):.1f}{span} "
            f"| {100 * error:+.1f} % |"
        )
        if seen != decided:
            _show_difference(seen, decided)
    return min(wrong, 1)


def agrees(lab: float, simulated: Sequence[float]) -> bool:
    """Within 5 % of the simulated figure, or of the range of them."""
    return min(simulated) * 0.95 <= lab <= max(simulated) * 1.05


def decisions(run: dict[str, Any]) -> list[Admission]:
    """Admissions that the simulator makes of the arrivals of a run."""
    setting = Setting(**_tuples(run["setting"]))
    nobody = Load("", [1], [1], clients=1)
    arrivals = [
        (
            turn,
            Request(n, 0.0, run["prompts"][n], run["outputs"][n], run["outputs"][n]),
        )
        for turn, n in run["arrivals"]
    ]
    return replay(make(run["arm"], server(setting), nobody), arrivals)


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}


def _turns(
    path: Path, document: dict[str, Any]
) -> tuple[list[Admission], list[tuple[int, int]]]:
    """Admissions and arrivals of one load; rids become numbers in order of the load."""
    numbers = {r["rid"]: n for n, r in enumerate(document["requests"])}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    slots = lines[0]["slots"]
    admissions: list[Admission] = []
    arrivals: list[tuple[int, int]] = []
    for line in lines[1:]:
        turn = line["turn"]
        if line.get("arrive") in numbers:
            arrivals.append((turn, numbers[line["arrive"]]))
        elif line.get("prefill") and line["prefill"][0] in numbers:
            rids = [numbers[rid] for rid in line["prefill"]]
            admissions.append((turn, turn % slots, rids))
    return admissions, arrivals


def simulated_tok_s(setting: Setting, run: dict[str, Any]) -> list[float]:
    """What the simulator makes of a run: one figure, or one per stagger."""
    lengths: dict[str, Any] = {"prompts": run["prompts"], "outputs": run["outputs"]}
    if run["workload"]["arrival"] == "closed":
        clients = run["workload"]["clients"]
        loads = [
            Load("closed", **lengths, clients=clients, think=CLIENT_S, stagger=stagger)
            for stagger in STAGGERS_S
        ]
    else:
        loads = [Load("open", **lengths, arrivals=sorted(run["sent"]))]
    found = []
    for load in loads:
        outcome = simulate(server(setting), profile(setting), load, run["arm"])
        end = max(request.end for request in outcome.requests)
        found.append(float(sum(run["outputs"]) / (end + CLIENT_S / 2)))
    return found


def _show_difference(seen: list[Admission], decided: list[Admission]) -> None:
    for number, (real, simulated) in enumerate(_zip(seen, decided)):
        if real != simulated:
            print(f"    admission {number}: SGLang {real}, simulator {simulated}")
            return


def _zip(one: list[Admission], two: list[Admission]) -> Iterator[tuple[Any, Any]]:
    for i in range(max(len(one), len(two))):
        yield one[i] if i < len(one) else None, two[i] if i < len(two) else None


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "collect", "compare"))
    parser.add_argument("folder", type=Path, nargs="?", help="of run and collect")
    parser.add_argument("settings", nargs="*", help="only these (run)")
    args = parser.parse_args()
    if args.what == "compare":
        return compare()
    if args.folder is None:
        parser.error(f"{args.what} needs a folder")
    if args.what == "run":
        run(args.folder, args.settings)
    else:
        collect(args.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
