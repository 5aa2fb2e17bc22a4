"""Every hook of the plugin, with what it expects of its target."""

from collections.abc import Callable
from typing import Any

from packaging.version import Version

from sglang_ppfix.compat import parameters
from sglang_ppfix.patching import Hook, Wrapper
from sglang_ppfix.settings import Settings

from . import agreement, cap, control, filling, memory, reports, startup, timing, totals

_SCHEDULER = "sglang.srt.managers.scheduler"
_POLICY = "sglang.srt.managers.schedule_policy"
_BATCH = "sglang.srt.managers.schedule_batch"
_RECEIVER = "sglang.srt.managers.scheduler_components.request_receiver"
_LOADS = "sglang.srt.managers.scheduler_components.load_inquirer"
_RUNNER = "sglang.srt.model_executor.model_runner"
_METRICS = "sglang.srt.observability.metrics_collector"

#: The module whose import makes every target importable.
TRIGGER = _SCHEDULER


def hooks(
    settings: Settings, check: Callable[[], bool], release: Version | None = None
) -> list[Hook]:
    """The hooks for one process.

    Args:
        settings: of this process.
        check: says, when a scheduler is made, whether the plugin may act.
        release: SGLang's; None takes the hooks of the newest.
    """
    every = [
        Hook(
            _SCHEDULER,
            "Scheduler.__init__",
            _unless_refused(check, startup.scheduler_init(settings, _checked)),
            parameters.SCHEDULER_INIT,
        ),
        Hook(
            _RUNNER,
            "ModelRunner.init_torch_distributed",
            _unless_refused(check, agreement.init_torch_distributed(settings)),
            [""],
        ),
        Hook(
            _SCHEDULER,
            "Scheduler.init_model_worker",
            _unless_refused(check, cap.init_model_worker(settings)),
            [""],
        ),
        Hook(
            _SCHEDULER,
            "Scheduler.init_pp_loop_state",
            _unless_refused(check, startup.init_pp_loop_state(settings)),
            [""],
        ),
        Hook(
            _SCHEDULER,
            "Scheduler.get_next_batch_to_run",
            filling.get_next_batch_to_run,
            parameters.GET_NEXT_BATCH_TO_RUN,
        ),
        Hook(
            _SCHEDULER,
            "Scheduler._get_new_batch_prefill_raw",
            filling.get_new_batch_prefill_raw,
            parameters.GET_NEW_BATCH_PREFILL_RAW,
        ),
        Hook(
            _POLICY,
            "PrefillAdder.__init__",
            memory.prefill_adder_init,
            parameters.PREFILL_ADDER_INIT,
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
            parameters.RETRACT_DECODE,
        ),
        Hook(
            _RECEIVER,
            "SchedulerRequestReceiver._pull_raw_reqs",
            control.pull_raw_reqs,
            [""],
        ),
        Hook(
            _SCHEDULER,
            "Scheduler.process_input_requests",
            control.process_input_requests,
            ["recv_reqs"],
        ),
        Hook(
            _SCHEDULER,
            "Scheduler.set_internal_state",
            control.set_internal_state,
            ["recv_req"],
        ),
        Hook(
            _SCHEDULER,
            "Scheduler.get_internal_state",
            control.get_internal_state,
            ["recv_req"],
        ),
        Hook(
            _SCHEDULER,
            "Scheduler._pp_send_dict_to_next_stage",
            reports.send_dict,
            parameters.PP_SEND_DICT_TO_NEXT_STAGE,
        ),
        Hook(
            _SCHEDULER,
            "Scheduler._pp_recv_typed_dict",
            reports.recv_typed_dict,
            ["expected_kind, all_gather_group"],
        ),
        Hook(
            _SCHEDULER,
            "Scheduler.run_batch",
            timing.run_batch,
            ["batch, pp_proxy_tensors"],
        ),
        Hook(
            _LOADS,
            "SchedulerLoadInquirer.get_loads",
            totals.get_loads,
            parameters.GET_LOADS,
        ),
        Hook(
            _METRICS,
            "SchedulerMetricsCollector.log_stats",
            totals.log_stats,
            ["stats"],
        ),
    ]
    return parameters.in_release(every, release)


def _unless_refused(check: Callable[[], bool], wrapper: Wrapper) -> Wrapper:
    """The wrapper as long as ``check`` says that the plugin may act, else stock.

    On the methods that set everything up, so that a hook that cannot be taken
    out, because another plugin's lies on top, has nothing to act on.
    """

    def checked(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        if not check():
            return wrapped(*args, **kwargs)
        return wrapper(wrapped, instance, args, kwargs)

    return checked


def _checked() -> None:
    """``_unless_refused`` has asked already."""
