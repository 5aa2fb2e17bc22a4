"""Every hook of the plugin, with what it expects of its target."""

from collections.abc import Callable

from sglang_ppfix.patching import Hook
from sglang_ppfix.settings import Settings

from . import cap, filling, memory, startup

_SCHEDULER = "sglang.srt.managers.scheduler"
_POLICY = "sglang.srt.managers.schedule_policy"
_BATCH = "sglang.srt.managers.schedule_batch"

#: The module whose import makes every target importable.
TRIGGER = _SCHEDULER

_ADDER = (
    "page_size, tree_cache, token_to_kv_pool_allocator, running_batch, "
    "new_token_ratio, rem_input_tokens, rem_chunk_tokens, num_mixed_decode_tokens, "
    "priority_scheduling_preemption_threshold, max_prefill_bs, max_running_requests, "
    "prefill_max_requests, prefill_delayer_single_pass, dllm_config, "
    "waiting_queue_len, prefill_tile_block_m"
)


def hooks(settings: Settings, check: Callable[[], None]) -> list[Hook]:
    """The hooks for one process; ``check`` runs when a scheduler is made."""
    return [
        Hook(
            _SCHEDULER,
            "Scheduler.__init__",
            startup.scheduler_init(settings, check),
            ["server_args, port_args"],
        ),
        Hook(
            _SCHEDULER,
            "Scheduler.init_model_worker",
            cap.init_model_worker(settings),
            [""],
        ),
        Hook(
            _SCHEDULER,
            "Scheduler.init_pp_loop_state",
            startup.init_pp_loop_state(settings),
            [""],
        ),
        Hook(
            _SCHEDULER,
            "Scheduler.get_next_batch_to_run",
            filling.get_next_batch_to_run,
            ["running_batch, last_batch"],
        ),
        Hook(
            _SCHEDULER,
            "Scheduler._get_new_batch_prefill_raw",
            filling.get_new_batch_prefill_raw,
            ["prefill_delayer_single_pass, running_batch"],
        ),
        Hook(
            _POLICY,
            "PrefillAdder.__init__",
            memory.prefill_adder_init,
            [_ADDER],
        ),
        Hook(
            _POLICY,
            "PrefillAdder.add_one_req",
            filling.add_one_req,
            ["req, has_chunked_req, truncation_align_size"],
        ),
        Hook(
            _POLICY,
            "PrefillAdder.add_one_req_ignore_eos",
            memory.add_one_req_ignore_eos,
            ["req"],
        ),
        Hook(
            _BATCH,
            "ScheduleBatch.retract_decode",
            memory.retract_decode,
            [""],
        ),
    ]
