"""Parameters of the hooked methods, where they differ between releases.

Spelled as ``patching.parameters_of`` does, without ``self``; newest first. The wrappers
know every one of these lists.
"""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from packaging.version import Version

SCHEDULER_INIT = (
    "server_args, port_args",  # from 0.5.21
    (
        "server_args, port_args, gpu_id, tp_rank, moe_ep_rank, pp_rank, "
        "attn_cp_rank, moe_dp_rank, dp_rank"
    ),
)
GET_NEXT_BATCH_TO_RUN = (
    "running_batch, last_batch",  # from 0.5.16
    "",
)
GET_NEW_BATCH_PREFILL_RAW = (
    "prefill_delayer_single_pass, running_batch",  # from 0.5.16
    "prefill_delayer_single_pass",
)
_ADDER = (
    "page_size, tree_cache, token_to_kv_pool_allocator, running_batch, "
    "new_token_ratio, rem_input_tokens, rem_chunk_tokens, num_mixed_decode_tokens, "
    "priority_scheduling_preemption_threshold, max_prefill_bs, max_running_requests, "
    "prefill_max_requests, prefill_delayer_single_pass, dllm_config"
)
PREFILL_ADDER_INIT = (
    f"{_ADDER}, waiting_queue_len, prefill_tile_block_m",  # from 0.5.18
    f"{_ADDER}, waiting_queue_len",  # from 0.5.12
    _ADDER,
)
RETRACT_DECODE = (
    "",  # from 0.5.19
    "server_args",
)
PP_SEND_DICT_TO_NEXT_STAGE = (
    "tensor_dict, async_send, msg_type, ready_event",  # from 0.5.21
    "tensor_dict, async_send, msg_type",
)
GET_LOADS = (
    "",  # from 0.5.16
    "req",
)

#: Methods that came later than the oldest supported release. Their hooks are left out
#: before, and what they carry is not there: say in ``docs/releases.md`` what that is.
SINCE = {
    # Before, Scheduler.recv_requests receives and broadcasts in one.
    "SchedulerRequestReceiver._pull_raw_reqs": Version("0.5.13"),
    # Before, get_loads is a method of the scheduler's metrics mixin.
    "SchedulerLoadInquirer.get_loads": Version("0.5.13"),
}


class _Named(Protocol):
    @property
    def qualname(self) -> str: ...


_Hook = TypeVar("_Hook", bound=_Named)


def in_release(hooks: Iterable[_Hook], release: Version | None) -> list[_Hook]:
    """Hooks whose target a release has; all of them where the release is unknown."""
    return [
        hook
        for hook in hooks
        if release is None
        or hook.qualname not in SINCE
        or release >= SINCE[hook.qualname]
    ]
