"""One pipeline stage that does nothing but decide: what a scheduling step calls."""

from array import array
from types import SimpleNamespace
from typing import Any

import wrapt
from sglang.srt.managers import schedule_policy
from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.runtime_context import get_context
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.server_args import ServerArgs

from sglang_ppfix.hooks import cap, control, filling, memory, reports, timing
from sglang_ppfix.hooks.ring import Ring, current_ring, open_ring
from sglang_ppfix.lab import device
from sglang_ppfix.settings import LogLevel, Settings

KINDS = {
    "idle": "an empty slot, nothing waits",
    "decode": "decode, nothing waits",
    "full": "decode, 8 wait, no row is free",
    "refused": "decode, 8 wait, share reached",
    "admits one": "admits one of 8",
    "admits eight": "admits eight to an empty slot",
}
WAITING = 8
PROMPT, OUTPUT = 512, 256
CHUNK = 2048


def request(rid: str) -> Req:
    """A request half way through its output."""
    sampling = SamplingParams(max_new_tokens=OUTPUT, temperature=0)
    req = Req(rid, "", array("q", range(PROMPT)), sampling)
    req.output_ids = array("q", range(OUTPUT // 2))
    return req


class _Scheduler:
    """Has what the hooks read; its methods stand for stock's, and cost nothing."""

    def __init__(self, requests: int, slots: int, kind: str) -> None:
        self.pp_loop_size = slots
        self.pp_group = SimpleNamespace(
            world_size=slots, rank_in_group=0, is_last_rank=False
        )
        self.tp_group = SimpleNamespace(rank_in_group=0)
        self.device_module = SimpleNamespace(Event=device.Event)
        self.server_args = SimpleNamespace(enable_metrics=False)
        self.max_running_requests = requests
        self.chunked_req = None
        self.chunked_prefill_size = CHUNK
        self.is_mixed_chunk = False
        self.enable_priority_preemption = False
        self.takes = 0
        held = [requests // slots] * slots
        waiting = 0 if kind in ("idle", "decode") else WAITING
        if kind == "idle":
            held[0] = 0
        if kind in ("admits one", "admits eight", "refused"):
            # Rows are free. A slot in its turn is below its share, or above it.
            self.takes = {"admits one": 1, "admits eight": 8, "refused": 0}[kind]
            self.max_running_requests = requests + WAITING
            held[0] += {"admits one": 0, "admits eight": -held[0], "refused": 8}[kind]
        self.running_mbs = [
            ScheduleBatch(
                reqs=[request(f"{slot}-{i}") for i in range(size)],
                forward_mode=ForwardMode.DECODE,
                batch_is_full=kind == "full",
            )
            for slot, size in enumerate(held)
        ]
        self.mbs = [batch if batch.reqs else None for batch in self.running_mbs]
        self.running_batch = self.running_mbs[0]
        self.waiting_queue = [request(f"waiting-{i}") for i in range(waiting)]
        free_rows = self.max_running_requests - requests
        self.req_to_token_pool = SimpleNamespace(available_size=lambda: free_rows)
        self.adder_class = _Adder

    def get_next_batch_to_run(self, running_batch: Any, last_batch: Any) -> Any:
        new_batch, _ = self._get_new_batch_prefill_raw(None, running_batch)
        decodes = running_batch if running_batch.reqs else None
        return SimpleNamespace(batch_to_run=new_batch or decodes)

    def _get_new_batch_prefill_raw(self, delayer: Any, running_batch: Any) -> Any:
        if running_batch.batch_is_full or not self.waiting_queue:
            return None, running_batch
        adder = self.adder_class(running_batch)
        for req in self.waiting_queue:
            if adder.add_one_req(req, False, None).name != "CONTINUE":
                break
        if not adder.can_run_list:
            return None, running_batch
        new = object.__new__(ScheduleBatch)
        new.__dict__.update(
            reqs=adder.can_run_list, decoding_reqs=None, forward_mode=ForwardMode.EXTEND
        )
        return new, running_batch

    def _pull_raw_reqs(self) -> list[Any]:
        return []

    def process_input_requests(self, recv_reqs: list[Any]) -> None:
        pass

    def run_batch(self, batch: Any) -> None:
        pass

    def _pp_send_dict_to_next_stage(self, tensors: Any, group: Any, kind: str) -> None:
        pass

    def _pp_recv_typed_dict(self, kind: str) -> Any:
        return {}, None


class _Adder(schedule_policy.PrefillAdder):  # type: ignore[misc]
    """Stock's arithmetic per request; its allocator and cache are left out."""

    def __init__(self, running_batch: Any) -> None:
        self.running_batch = running_batch
        self.can_run_list: list[Any] = []
        self.preempt_list: list[Any] = []
        self.log_input_tokens = 0
        self.new_token_ratio = 0.5
        self.rem_chunk_tokens = CHUNK
        self.new_chunked_req = None
        self.page_size = 1
        self.memory_budget = SimpleNamespace(total_offset=0.0)

    def add_one_req(self, req: Any, *_more: Any) -> Any:
        self.can_run_list.append(req)
        return schedule_policy.AddReqResult.CONTINUE


class _HookedScheduler(_Scheduler):
    pass


class _HookedAdder(_Adder):
    pass


def _hook() -> None:
    """Put the hooks on, as ``sglang_ppfix.hooks.table`` does on SGLang's classes."""
    hooks = (
        (_HookedScheduler, _Scheduler, "_pull_raw_reqs", control),
        (_HookedScheduler, _Scheduler, "process_input_requests", control),
        (_HookedScheduler, _Scheduler, "get_next_batch_to_run", filling),
        (_HookedScheduler, _Scheduler, "_get_new_batch_prefill_raw", filling),
        (_HookedScheduler, _Scheduler, "run_batch", timing),
        (_HookedScheduler, _Scheduler, "_pp_send_dict_to_next_stage", reports),
        (_HookedScheduler, _Scheduler, "_pp_recv_typed_dict", reports),
        (_HookedAdder, _Adder, "add_one_req", filling),
        (_HookedAdder, _Adder, "__init__", memory),
    )
    wrappers = {
        "_pull_raw_reqs": "pull_raw_reqs",
        "_get_new_batch_prefill_raw": "get_new_batch_prefill_raw",
        "_pp_send_dict_to_next_stage": "send_dict",
        "_pp_recv_typed_dict": "recv_typed_dict",
        "__init__": "prefill_adder_init",
    }
    for hooked, stock, name, module in hooks:
        wrapper = getattr(module, wrappers.get(name, name))
        setattr(hooked, name, wrapt.FunctionWrapper(stock.__dict__[name], wrapper))


_hook()


class Stage:
    """Runs one kind of step, again and again, always from the same state."""

    def __init__(self, requests: int, slots: int, kind: str, log: bool) -> None:
        self._plain = _Scheduler(requests, slots, kind)
        self._hooked = _HookedScheduler(requests, slots, kind)
        self._hooked.adder_class = _HookedAdder
        micro_batch = -(-self._hooked.max_running_requests // slots)
        get_context().set_server_args(
            ServerArgs(
                model_path="dummy",
                device="cpu",
                pp_size=slots,
                pp_max_micro_batch_size=micro_batch,
            )
        )
        cap._cap = cap.Cap(self._hooked.max_running_requests, slots, given=True)
        level = LogLevel.ADMISSIONS if log else LogLevel.OFF
        self._ring: Ring = open_ring(self._hooked, Settings(log=level))
        self._kind = kind
        self.check()

    def step_with_hooks(self) -> None:
        """One loop iteration's calls, with the hooks on."""
        _step(self._hooked)

    def step_without_hooks(self) -> None:
        """The same calls on the same methods, unhooked."""
        _step(self._plain)

    def check(self) -> None:
        """The step is of the kind that its name says.

        Raises:
            RuntimeError: it decided something else.
        """
        ring, wanted = self._ring, self._hooked.takes
        if current_ring() is not ring:
            raise RuntimeError("another stage was made since")
        before = ring.log.new_seqs
        self.step_with_hooks()
        took = ring.log.new_seqs - before
        if took != wanted:
            raise RuntimeError(f"{self._kind!r}: {took} requests admitted")
        reasons = {"full": "latch", "refused": "share"}
        if self._kind in reasons and not ring.log.deferred[reasons[self._kind]]:
            raise RuntimeError(f"{self._kind!r}: deferred {dict(ring.log.deferred)}")


def _step(scheduler: Any) -> None:
    batch = scheduler.running_batch
    scheduler.process_input_requests(scheduler._pull_raw_reqs())
    plan = scheduler.get_next_batch_to_run(running_batch=batch, last_batch=None)
    if plan.batch_to_run is None:
        return
    scheduler.run_batch(plan.batch_to_run)
    scheduler._pp_send_dict_to_next_stage({}, None, "proxy")
    scheduler._pp_send_dict_to_next_stage({}, None, "output")
    scheduler._pp_recv_typed_dict("output")
