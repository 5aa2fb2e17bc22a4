"""A lab server with the plugin, and what must hold after every load on it.

Outputs are checked token by token by the lab's oracle: a request in a wrong row, slot
or position, or a rank that ran another batch than its neighbour, changes them.
"""

import itertools
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sglang_ppfix.lab.client import run_load
from sglang_ppfix.lab.config import LabConfig
from sglang_ppfix.lab.load import GREEDY, Arrival, Lengths, Load, RequestResult
from sglang_ppfix.lab.load import plan_load as plan
from sglang_ppfix.lab.oracle import check_output
from sglang_ppfix.lab.profile_file import stage_profile
from sglang_ppfix.lab.server import LabServer
from sglang_ppfix.lab.trace import Forward, read_traces

STOCK, OBSERVE, BALANCED, AUTO = range(4)
"""Codes of the policies for ``/set_internal_state``."""

# A leak makes SGLang's idle self-check raise.
_BAD_LINES = re.compile(r"Traceback|leak|Scheduler hit an exception", re.I)

_loads = itertools.count()
_threads = ThreadPoolExecutor(8)


def plugin_config(
    pp_size: int, env: Mapping[str, str] | None = None, **options: Any
) -> LabConfig:
    """A server with the plugin on, short stages and a decision log.

    Args:
        pp_size: stages; as few as the test can do with, a start is long.
        env: further environment of the server.
        options: those of :class:`LabConfig`.
    """
    return LabConfig(
        stage_profile("4+1b", pp_size),
        env={
            "SGLANG_PPFIX": "1",
            # From the server's working folder.
            "SGLANG_PPFIX_DECISION_LOG": "../decisions",
            **(env or {}),
        },
        **options,
    )


class PluginServer:
    """A running server, as these tests use it. Loads run one after the other."""

    def __init__(self, server: LabServer) -> None:
        self.server = server
        self.pp_size = server.config.pp_size
        given = server.config.extra_args
        tp = "--tp-size"
        self.tp_size = int(given[given.index(tp) + 1]) if tp in given else 1
        self.decision_dir: Path = server.folder / "decisions"
        self._begin = 0.0
        self._log_begin = 0
        self.begin()

    def load(
        self,
        arrival: Arrival,
        clients: int,
        prompt: str,
        output: str,
        requests: int | None = None,
        sampling: Mapping[str, Any] = GREEDY,
        seed: int = 0,
    ) -> Load:
        """Plan a load whose request ids no other load has."""
        return plan(
            arrival,
            clients,
            Lengths.parse(prompt, "prompt"),
            Lengths.parse(output, "output"),
            seed=seed,
            requests=requests,
            sampling=sampling,
            rid_prefix=f"load{next(_loads)}-",
        )

    def begin(self) -> None:
        """What :meth:`forwards` and :meth:`log` show starts now."""
        self._begin = time.monotonic()
        self._log_begin = len(self.server.log())

    def send(self, load: Load) -> list[RequestResult]:
        """Send a load and wait for its answers."""
        return run_load(self.server.url, load, timeout_s=400)

    def start(self, load: Load) -> "Future[list[RequestResult]]":
        """Send a load from a thread of its own."""
        return _threads.submit(self.send, load)

    def run(self, load: Load) -> list[RequestResult]:
        """Run a load alone; the server is idle and clean afterwards."""
        self.begin()
        results = self.send(load)
        self.settle()
        return results

    def settle(self) -> None:
        """Wait until no slot holds a request; nothing leaked, nothing crashed."""
        self.server.wait_idle()
        self.server.check_alive()
        bad = [line for line in self.log().splitlines() if _BAD_LINES.search(line)]
        assert not bad, bad[:5]

    def complete(self, results: Sequence[RequestResult]) -> None:
        """Every request got all of its tokens, and the right ones."""
        for result in results:
            rid, request = result.request.rid, result.request
            assert result.finish == "length", (rid, result.finish, result.error)
            assert len(result.output) == request.output_tokens, rid
        self.right(results)

    def right(self, results: Sequence[RequestResult]) -> None:
        """Every token that came is right, also of requests that ended early."""
        for result in results:
            request = result.request
            wrong = check_output(
                request.prompt, result.output, self.pp_size, request.sampling
            )
            assert wrong is None, (request.rid, wrong)

    def forwards(self, rank: int = 0) -> list[Forward]:
        """What a stage's device did since the last :meth:`begin`."""
        return read_traces(self.server.trace_dir, self._begin)[rank]

    def wait_for(self, wanted: Callable[[list[Forward]], bool]) -> None:
        """Wait until the first stage's device has done what ``wanted`` looks for."""
        deadline = time.monotonic() + 120
        while not wanted(self.forwards()):
            self.server.check_alive()
            assert time.monotonic() < deadline, "never seen in the trace"
            time.sleep(0.02)

    def log(self) -> str:
        """The server's log since the last :meth:`begin`."""
        return self.server.log()[self._log_begin :]

    def switch(self, **codes: int) -> bool:
        """Change the runtime switch (keys without prefix); whether it was accepted."""
        return self.set_state({f"ppfix_{key}": code for key, code in codes.items()})

    def set_state(self, server_args: Mapping[str, Any]) -> bool:
        """``/set_internal_state``; whether the scheduler accepted it."""
        answer = self.server.post(
            "/set_internal_state", {"server_args": dict(server_args)}
        )
        return answer == [True]

    def internal_state(self) -> dict[str, Any]:
        """``internal_states[0]`` of ``/server_info``."""
        state: dict[str, Any] = self.server.get("/server_info")["internal_states"][0]
        return state

    def decisions(self) -> list[str]:
        """Lines of the decision log, after checking that all ranks wrote the same."""
        files = sorted(self.decision_dir.glob("decisions.pp*.tp*.jsonl"))
        assert len(files) == self.pp_size * self.tp_size, files
        # A later rank may still write what an earlier one has written.
        deadline = time.monotonic() + 30
        while True:
            contents = [path.read_bytes() for path in files]
            if len(set(contents)) == 1 or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        for path, content in zip(files, contents, strict=True):
            assert content == contents[0], f"{path.name} differs from {files[0].name}"
        return contents[0].decode().splitlines()


def ready(
    lab_server: Callable[[LabConfig], LabServer], config: LabConfig
) -> PluginServer:
    """A server that fills evenly, over the default number of slots."""
    plugin = PluginServer(lab_server(config))
    assert plugin.switch(policy=BALANCED, slots=0)
    plugin.begin()
    return plugin


def steady_sizes(forwards: Sequence[Forward]) -> dict[int, int]:
    """Largest decode of each slot after the last prefill, until a request ends.

    Args:
        forwards: of one rank, over one burst whose requests all decode at one time.
    """
    last_prefill = max(i for i, f in enumerate(forwards) if f.mode != "decode")
    decodes = forwards[last_prefill + 1 :]
    ends = {rid: index for index, f in enumerate(decodes) for rid in f.rids}
    sizes: dict[int, int] = {}
    for forward in decodes[: min(ends.values()) + 1]:
        sizes[forward.slot] = max(sizes.get(forward.slot, 0), forward.requests)
    return sizes


def rids(forwards: Sequence[Forward]) -> set[str]:
    """Requests that were in these forwards."""
    return {rid for forward in forwards for rid in forward.rids}


def most_at_once(forwards: Sequence[Forward]) -> int:
    """Most requests that lay between their first and last forward at one time."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for index, forward in enumerate(forwards):
        for rid in forward.rids:
            first.setdefault(rid, index)
            last[rid] = index
    changes = [(index, 1) for index in first.values()]
    changes += [(index, -1) for index in last.values()]
    # An index belongs to one slot: what ends there leaves before its next turn.
    at_once = itertools.accumulate(
        change for _index, change in sorted(changes, key=lambda c: (c[0], -c[1]))
    )
    return max(at_once)


def slot_sequence(
    forwards: Sequence[Forward],
) -> list[tuple[int, str, int, tuple[str, ...]]]:
    """Which slot ran which requests, in order, without times.

    Slots are numbered by their first appearance: a burst meets the ring at any slot.
    """
    names: dict[int, int] = {}
    return [
        (names.setdefault(f.slot, len(names)), f.mode, f.tokens, f.rids)
        for f in forwards
    ]


_ADMISSION = re.compile(
    r"ppfix admission, #slot: (?P<slot>\d+), #new-seq: (?P<new>\d+), "
    r"#slot-req: (?P<slot_req>\d+), #share: (?P<share>\d+), #cap: (?P<cap>\d+), "
    r"#total-req: (?P<total>\d+), #queue-req: (?P<queue>\d+), #slots: (?P<slots>\S+)"
)


def admissions(log: str) -> list[dict[str, Any]]:
    """The admission lines of a log; ``slots`` is a list, the rest are numbers."""
    found = []
    for match in _ADMISSION.finditer(log):
        fields: dict[str, Any] = {
            key: int(text) for key, text in match.groupdict().items() if key != "slots"
        }
        fields["slots"] = [int(part) for part in match["slots"].split("/")]
        found.append(fields)
    return found


def admitted(decisions: Sequence[str]) -> list[list[str]]:
    """Request ids of each admission in a decision log, in order."""
    lines = [json.loads(line) for line in decisions]
    return [line[3] for line in lines if len(line) == 4]
