"""What the plugin relies on in SGLang, beside the parameters of what it hooks.

Every entry says why, so that whoever reads of a drift knows what to look at.
"""

from typing import NamedTuple

SCHEDULER = "sglang.srt.managers.scheduler"
POLICY = "sglang.srt.managers.schedule_policy"
BATCH = "sglang.srt.managers.schedule_batch"


class Body(NamedTuple):
    """A function whose body matters, not only its parameters."""

    module: str
    qualname: str
    why: str

    @property
    def target(self) -> str:
        """Dotted path."""
        return f"{self.module}.{self.qualname}"


class Attributes(NamedTuple):
    """Names that instances of a class must have; ``a|b``: one of them is enough."""

    module: str
    name: str
    names: tuple[str, ...]


class Call(NamedTuple):
    """A function must mention a name: call it, read it or set it."""

    module: str
    qualname: str
    name: str
    why: str


BODIES = (
    Body(
        SCHEDULER,
        "Scheduler.init_model_worker",
        "sets pp_max_micro_batch_size only where the user gave none",
    ),
    Body(SCHEDULER, "Scheduler.init_pp_loop_state", "makes the slots"),
    Body(
        SCHEDULER,
        "Scheduler.event_loop_pp",
        "sets running_batch to the slot's before it asks for a batch to run",
    ),
    Body(
        SCHEDULER,
        "Scheduler.get_next_batch_to_run",
        "merges the slot's last prefill before it takes in requests",
    ),
    Body(
        SCHEDULER,
        "Scheduler._get_new_batch_prefill_raw",
        "stops at a refused request, and latches the slot at NO_TOKEN only",
    ),
    Body(
        SCHEDULER,
        "Scheduler.get_num_allocatable_reqs",
        "is the one reader of pp_max_micro_batch_size",
    ),
    Body(
        SCHEDULER,
        "Scheduler.update_running_batch",
        "requeues what retract_decode retracts, and answers what it aborts",
    ),
    Body(
        POLICY,
        "PrefillAdder.__init__",
        "reserves the future tokens of one slot's requests",
    ),
    Body(POLICY, "PrefillAdder.add_one_req", "OTHER ends the turn without a latch"),
    Body(
        POLICY,
        "PrefillAdder.add_one_req_ignore_eos",
        "keeps (tokens left, tokens held) of each request in req_states",
    ),
    Body(
        POLICY,
        "PrefillAdder._get_running_request_total_token_offset",
        "estimates the future tokens of a running request",
    ),
    Body(
        BATCH,
        "ScheduleBatch.retract_decode",
        "puts the aborted last request last and releases its KV either way",
    ),
)

ATTRIBUTES = (
    Attributes(
        SCHEDULER,
        "Scheduler",
        (
            "chunked_req",
            "enable_priority_scheduling",
            "max_running_requests",
            "mbs",
            "metrics_collector",
            "pp_group",
            "pp_loop_size",
            "running_batch",
            "running_mbs",
            "server_args",
            "tp_group",
            "waiting_queue",
        ),
    ),
    Attributes(
        POLICY,
        "PrefillAdder",
        (
            "can_run_list",
            "log_input_tokens",
            "memory_budget|rem_total_token_offset",
            "new_token_ratio",
            "preempt_list",
            "rem_chunk_tokens",
            "req_states",
            "running_batch",
        ),
    ),
    Attributes(POLICY, "AddReqResult", ("NO_TOKEN", "OTHER")),
    Attributes(
        BATCH,
        "ScheduleBatch",
        ("batch_is_full", "chunked_req", "decoding_reqs", "reqs"),
    ),
    Attributes(
        BATCH,
        "Req",
        (
            "extend_end|extend_range|fill_len|fill_ids",
            "finished",
            "origin_input_ids",
            "output_ids",
            "rid",
            "sampling_params",
            "to_finish",
        ),
    ),
    Attributes("sglang.srt.environ", "Envs", ("SGLANG_RETRACT_DECODE_STEPS",)),
    Attributes(
        "sglang.srt.observability.metrics_collector", "QueueCount", ("from_reqs",)
    ),
    Attributes("sglang.srt.plugins.hook_registry", "HookRegistry", ("_hooks",)),
)

CALLS = (
    Call(
        SCHEDULER,
        "run_scheduler_process",
        "load_plugins",
        "a scheduler process would not load the plugin",
    ),
    Call(
        SCHEDULER,
        "Scheduler.init_model_worker",
        "pp_max_micro_batch_size",
        "the cap is derived elsewhere",
    ),
    Call(
        SCHEDULER,
        "Scheduler.get_num_allocatable_reqs",
        "pp_max_micro_batch_size",
        "the cap is read elsewhere",
    ),
    Call(
        SCHEDULER,
        "Scheduler.event_loop_pp",
        "get_next_batch_to_run",
        "a slot's turn begins elsewhere",
    ),
    Call(
        SCHEDULER,
        "Scheduler._get_new_batch_prefill_raw",
        "add_one_req",
        "requests are taken in elsewhere",
    ),
)
