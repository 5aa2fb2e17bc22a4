"""What differs between releases in the scheduler, by feature first.

Facts per release were read in the wheels of 0.5.11 to 0.5.23. Only this module
knows where a value lives; hooks ask it. Imports of sglang are inside functions:
they run in a scheduler process, where it is loaded already.
"""

from typing import Any

from .parameters import SINCE
from .release import installed_release


def has_control_channel() -> bool:
    """Whether rank 0 can put a message among the requests that it relays."""
    release = installed_release()
    since = SINCE["SchedulerRequestReceiver._pull_raw_reqs"]
    return release is None or release >= since


def read_cap() -> int | None:
    """``pp_max_micro_batch_size`` now; None while the user gave none and SGLang has
    not derived it."""
    value = getattr(_cap_home(), "pp_max_micro_batch_size", None)
    return None if not value else int(value)


def given_cap(scheduler: Any) -> int | None:
    """``--pp-max-micro-batch-size`` as the user gave it; None where they gave none.

    Also before ``init_model_worker``, when ``read_cap`` cannot be asked: up to 0.5.16
    SGLang publishes its arguments in there.
    """
    value = scheduler.server_args.pp_max_micro_batch_size
    return int(value) if value else None


def write_cap(cap: int) -> None:
    """Set ``pp_max_micro_batch_size`` where SGLang reads it and shows it."""
    values = {"pp_max_micro_batch_size": cap}
    try:
        from sglang.srt import runtime_context
    except ImportError:  # before 0.5.14
        runtime_context = None
    if _in_parallel_context(runtime_context):  # from 0.5.17
        runtime_context.get_context().override("ppfix.derived_cap", **values)
    elif hasattr(_cap_home(), "override"):  # 0.5.16
        _cap_home().override("ppfix.derived_cap", **values)
    else:
        _cap_home().pp_max_micro_batch_size = cap


def _cap_home() -> Any:
    try:
        from sglang.srt import runtime_context
    except ImportError:
        runtime_context = None
    if _in_parallel_context(runtime_context):
        return runtime_context.get_parallel()
    if hasattr(runtime_context, "get_server_args"):
        return runtime_context.get_server_args()
    from sglang.srt.server_args import get_global_server_args

    return get_global_server_args()


def _in_parallel_context(runtime_context: Any) -> bool:
    # 0.5.14 to 0.5.16 have the parallel context, but not the cap in it.
    return hasattr(runtime_context, "get_context") and hasattr(
        runtime_context.get_parallel(), "pp_max_micro_batch_size"
    )


def async_batch_depth(scheduler: Any) -> int:
    """``--pp-async-batch-depth`` of this server."""
    return int(scheduler.server_args.pp_async_batch_depth)


def tp_rank(scheduler: Any) -> int:
    """Rank in the tensor-parallel group, 0 without tensor parallelism."""
    return int(scheduler.tp_group.rank_in_group)


def pp_rank(scheduler: Any) -> int:
    """Pipeline stage of this process."""
    return int(scheduler.pp_group.rank_in_group)


def running_batch(scheduler: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Running batch of ``_get_new_batch_prefill_raw``: an argument from 0.5.16 on
    (second, usually by keyword), an attribute before."""
    if "running_batch" in kwargs:
        return kwargs["running_batch"]
    return args[1] if len(args) > 1 else scheduler.running_batch


def new_batch(result: Any) -> Any:
    """Batch out of the result of ``_get_new_batch_prefill_raw``, or None: a pair
    with the running batch from 0.5.16 on, the batch itself before."""
    return result[0] if isinstance(result, tuple) else result


def batch_to_run(result: Any) -> Any:
    """Batch out of the result of ``get_next_batch_to_run``, or None: in a plan from
    0.5.16 on, the batch itself before."""
    return getattr(result, "batch_to_run", result)


def launched_batch(
    scheduler: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Batch of ``_pp_launch_batch``: its second argument from 0.5.16 on, an attribute
    of the scheduler before."""
    if "cur_batch" in kwargs:
        return kwargs["cur_batch"]
    # mb_id, batch, proxy tensors, metadata, queue; without the batch before.
    return args[1] if len(args) + len(kwargs) == 5 else scheduler.cur_batch


def add_future_tokens(adder: Any, tokens: float) -> None:
    """Reserve ``tokens`` of the prefill budget of a ``PrefillAdder``."""
    budget = getattr(adder, "memory_budget", None)
    if budget is not None:
        budget.total_offset += tokens
    else:
        adder.rem_total_token_offset += tokens


def computed_tokens(req: Any) -> int:
    """Prompt tokens of a chunked request whose KV exists or is in flight, between
    two chunks."""
    end = getattr(req, "extend_end", None)  # from 0.5.22
    if end is None and getattr(req, "extend_range", None) is not None:
        end = req.extend_range.end  # 0.5.15 to 0.5.21
    if end is None:
        end = getattr(req, "fill_len", None)  # 0.5.13 and 0.5.14
    return int(end) if end is not None else len(req.fill_ids)


def tokens_to_prefill(req: Any) -> int:
    """Tokens that ``PrefillAdder.add_one_req`` has to prefill of a waiting request:
    without its cached prefix, on the device or to be loaded back."""
    prefix = getattr(req, "prefix_len", None)  # from 0.5.22
    if prefix is None:
        prefix = len(req.prefix_indices)
    tokens = len(req.origin_input_ids) + len(req.output_ids)
    return int(tokens - prefix - req.host_hit_length)


def retract_steps() -> int:
    """Decode steps that a retraction makes room for (SGLang's environment)."""
    from sglang.srt.environ import envs

    return int(envs.SGLANG_RETRACT_DECODE_STEPS.get())


def out_of_scope(scheduler: Any) -> str | None:
    """Why this scheduler keeps stock behaviour, or None.

    Each of these is untested, or has a loop of its own.
    """
    args = scheduler.server_args
    if str(args.disaggregation_mode) not in ("null", "None"):
        return f"--disaggregation-mode {args.disaggregation_mode}"
    if getattr(args, "speculative_algorithm", None):
        return f"--speculative-algorithm {args.speculative_algorithm}"
    if getattr(args, "enable_dp_attention", False):
        return "--enable-dp-attention"
    if getattr(args, "dllm_algorithm", None):
        return f"--dllm-algorithm {args.dllm_algorithm}"
    if getattr(args, "enable_hisparse", False):
        return "--enable-hisparse"
    return None


def received_tensors(result: Any) -> dict[str, Any]:
    """Dict out of the result of ``_pp_recv_typed_dict``: in a pair with an event from
    0.5.21 on, the dict itself before."""
    return result[0] if isinstance(result, tuple) else result  # type: ignore[no-any-return]


def metrics_collector(scheduler: Any) -> Any:
    """SGLang's collector of this rank; None where it reports nothing either.

    Every tensor-parallel rank has one; SGLang's first alone uses it, unless
    ``--enable-metrics-for-all-schedulers`` is set.
    """
    args = scheduler.server_args
    if not args.enable_metrics:
        return None
    if tp_rank(scheduler) and not args.enable_metrics_for_all_schedulers:
        return None
    return getattr(scheduler, "metrics_collector", None)
