"""Stock against plugin: servers in turn, the same loads on each."""

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from .bound import bound_tok_s
from .client import run_load
from .config import LabConfig
from .errors import LabError
from .load import Arrival, Lengths, Load, RequestResult, plan_load
from .machine import check_machine
from .measure import Measurement, measure, outputs_identical
from .server import LabServer
from .trace import Forward, read_traces

ARMS: Mapping[str, Mapping[str, str]] = {
    "stock": {"SGLANG_PPFIX": "0"},
    "plugin": {"SGLANG_PPFIX": "1"},
}
"""Environment of each arm."""

_WARM_UP_TOKENS = 4
_SETTLE_S = 0.3

Report = Callable[[str], None]


@dataclass(frozen=True)
class Experiment:
    """What to run.

    Attributes:
        server: the server of every arm; ``env`` is added to by the arm.
        clients: numbers of requests in flight, one row each.
        prompt: prompt lengths in tokens.
        output: output lengths in tokens.
        arrival: see :class:`Load`.
        requests_per_client: requests of a load, over its clients.
        rate_per_s: arrivals a second of a Poisson load; ``None`` takes the rate that
            keeps ``clients`` in flight at the law's bound.
        seed: of the loads.
        arms: names out of :data:`ARMS`, in the order of the servers.
        pairs: how often to start every arm's server.
        repeats: how often to run every load on a server.
        stream: let clients receive every token (see :func:`run_load`).
    """

    server: LabConfig
    clients: tuple[int, ...]
    prompt: Lengths
    output: Lengths
    arrival: Arrival = "burst"
    requests_per_client: int = 1
    rate_per_s: float | None = None
    seed: int = 0
    arms: tuple[str, ...] = ("stock", "plugin")
    pairs: int = 1
    repeats: int = 1
    stream: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be run, in one line.

        Raises:
            LabError: a value is out of range.
        """
        for arm in self.arms:
            if arm not in ARMS:
                raise LabError(f"arm {arm!r}: choose from {', '.join(ARMS)}")
        counts = {
            "clients": self.clients,
            "requests per client": (self.requests_per_client,),
            "pairs": (self.pairs,),
            "repeats": (self.repeats,),
        }
        for name, values in counts.items():
            if not values or min(values) < 1:
                raise LabError(f"{name} {list(values)}: need 1 or more")
        if self.stream and self.arrival == "burst":
            raise LabError("--stream: a burst is one call, and is not streamed")
        longest = self.prompt.high + self.output.high
        if longest >= self.server.kv_tokens:
            raise LabError(
                f"kv_tokens {self.server.kv_tokens}: one request may need {longest}"
            )

    def bound(self, clients: int) -> float:
        """The law's bound for ``clients`` in flight, output tokens a second."""
        return bound_tok_s(
            self.server.profile,
            clients,
            self.server.slots,
            self.server.max_running_requests,
            self.prompt.average,
            self.output.average,
        )

    def load(self, clients: int) -> Load:
        """The load of one row: ids apart, the same in every arm and repeat."""
        rate = self.rate_per_s or self.bound(clients) / self.output.average
        return plan_load(
            self.arrival,
            clients,
            self.prompt,
            self.output,
            self.seed,
            requests=clients * self.requests_per_client,
            rate_per_s=rate,
        )


@dataclass(frozen=True)
class Run:
    """One load on one server.

    Attributes:
        arm: ``stock`` or ``plugin``.
        pair: which server of that arm, from 0.
        clients: requests in flight.
        begin: when the load began, seconds on CLOCK_MONOTONIC.
        end: when every answer was there.
        results: what the clients got.
        traces: what the devices did, one list a rank.
        measurement: the figures.
    """

    arm: str
    pair: int
    clients: int
    begin: float
    end: float
    results: list[RequestResult]
    traces: list[list[Forward]]
    measurement: Measurement


@dataclass(frozen=True)
class Outcome:
    """An experiment and all its runs."""

    experiment: Experiment
    runs: list[Run] = field(default_factory=list)

    def of(self, arm: str, clients: int) -> list[Run]:
        """Runs of one arm and row, in order."""
        return [run for run in self.runs if (run.arm, run.clients) == (arm, clients)]

    def tok_s(self, arm: str, clients: int) -> float | None:
        """Median throughput of one arm and row; ``None`` if it was not run."""
        runs = self.of(arm, clients)
        return statistics.median(r.measurement.tok_s for r in runs) if runs else None

    def identical(self, clients: int) -> bool:
        """Whether all runs of a row gave the same tokens, request by request."""
        return outputs_identical([r.results for r in self.runs if r.clients == clients])


def plenty_of_kv(max_running_requests: int, prompt: Lengths, output: Lengths) -> int:
    """KV tokens with which memory never matters: twice what all rows can hold."""
    return max(4096, 2 * max_running_requests * (prompt.high + output.high))


def run_experiment(
    experiment: Experiment,
    report: Report,
    keep_logs: Path | None = None,
) -> Outcome:
    """Run every arm's server, one at a time, and every load on it.

    Args:
        experiment: what to run.
        report: called with one line whenever something begins.
        keep_logs: folder for logs and traces of all servers; ``None`` keeps none.

    Raises:
        LabError: the machine is too small, or a server died.
    """
    check_machine(experiment.server.pp_size)
    outcome = Outcome(experiment)
    with ExitStack() as cleanup:
        folder = keep_logs or Path(
            cleanup.enter_context(tempfile.TemporaryDirectory(prefix="ppfix-lab-"))
        )
        turns = [
            (pair, arm) for pair in range(experiment.pairs) for arm in experiment.arms
        ]
        for turn, (pair, arm) in enumerate(turns):
            report(
                f"server {turn + 1} of {len(turns)} ({arm}): starting, about a minute"
            )
            outcome.runs.extend(_run_arm(experiment, arm, pair, folder, report))
    return outcome


def _run_arm(
    experiment: Experiment, arm: str, pair: int, folder: Path, report: Report
) -> Sequence[Run]:
    env = {**experiment.server.env, **ARMS[arm]}
    server = LabServer(replace(experiment.server, env=env), folder / f"{arm}-{pair}")
    runs: list[Run] = []
    with server:
        report(f"{arm}: warming up")
        warm_up(server)
        for clients in experiment.clients:
            for _ in range(experiment.repeats):
                load = experiment.load(clients)
                run = run_on(server, load, arm, pair, experiment.stream)
                runs.append(run)
                report(f"{arm}: C={clients}: {run.measurement.tok_s:.1f} tok/s")
    return runs


def run_on(
    server: LabServer, load: Load, arm: str = "", pair: int = 0, stream: bool = False
) -> Run:
    """One load on a running server, which is idle before and after.

    Raises:
        LabError: the server died, or is still busy a minute after the last answer.
    """
    begin = time.monotonic()
    results = run_load(server.url, load, stream)
    end = time.monotonic()
    server.wait_idle()
    traces = read_traces(server.trace_dir, begin)
    measurement = measure(results, traces, server.config.pp_size)
    return Run(arm, pair, load.clients, begin, end, results, traces, measurement)


def warm_up(server: LabServer) -> None:
    """Let every slot and the HTTP server do everything once."""
    tokens = Lengths(_WARM_UP_TOKENS, _WARM_UP_TOKENS)
    clients = min(2 * server.config.slots, server.config.max_running_requests)
    load = plan_load("burst", clients, tokens, tokens, seed=0)
    run_load(server.url, load)
    server.wait_idle()
    time.sleep(_SETTLE_S)
