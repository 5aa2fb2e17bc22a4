"""Puts the emulated device under SGLang, in each process of a lab server.

Read in SGLang 0.5.23: ``parallel_state.init_model_parallel_group``,
``GroupCoordinator.send_tensor_dict`` and ``recv_tensor_dict``,
``Scheduler._pp_launch_batch`` and ``init_pp_loop_state``. ``torch.cpu`` offers streams
and events that do nothing, "to facilitate device-agnostic code"; the device's replace
them, so SGLang's own ``record``, ``wait_event`` and ``synchronize`` say what waits for
what, as on a GPU.
"""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import wrapt

from sglang_ppfix.compat import scheduler as compat

from . import device
from .rank import Rank, current_rank, start_rank
from .wrapping import wrap_target

READY_AT = "__ppfix_lab_ready_at__"
"""Key of a message between stages: when the sender's device has produced it."""

_PARALLEL_STATE = "sglang.srt.distributed.parallel_state"
_SCHEDULER = "sglang.srt.managers.scheduler"
_installed: list[str] = []


def install(path: str) -> None:
    """Hook SGLang's modules as soon as they are imported (idempotent)."""
    if _installed:
        return
    _installed.append(path)

    def hook_parallel_state(module: ModuleType) -> None:
        wrap_target(module, "init_model_parallel_group", "use_pynccl", _without_pynccl)
        wrap_target(module, "GroupCoordinator.send_tensor_dict", "tensor_dict", _send)
        wrap_target(module, "GroupCoordinator.recv_tensor_dict", None, _receive)

    def hook_scheduler(module: ModuleType) -> None:
        def begin(
            wrapped: Callable[..., Any], scheduler: Any, args: Any, kwargs: Any
        ) -> Any:
            start_rank(Path(path), scheduler.pp_group.rank_in_group)
            return wrapped(*args, **kwargs)

        wrap_target(module, "Scheduler.init_pp_loop_state", None, begin)
        wrap_target(module, "Scheduler._pp_launch_batch", "mb_id", _launch)

    wrapt.register_post_import_hook(_replace_streams, "torch.cpu")
    wrapt.register_post_import_hook(hook_parallel_state, _PARALLEL_STATE)
    wrapt.register_post_import_hook(hook_scheduler, _SCHEDULER)


def _replace_streams(torch_cpu: Any) -> None:
    torch_cpu.Stream = device.Stream
    torch_cpu.Event = device.Event
    torch_cpu.StreamContext = torch_cpu.stream = device.StreamContext
    torch_cpu.current_stream = lambda *_args: device.streams.current


def _without_pynccl(
    wrapped: Callable[..., Any], _instance: Any, args: Any, kwargs: Any
) -> Any:
    # The PP group is the only one that insists on pynccl, which needs a GPU.
    kwargs["use_pynccl"] = False
    return wrapped(*args, **kwargs)


def _send(wrapped: Callable[..., Any], _group: Any, args: Any, kwargs: Any) -> Any:
    """Send at once; the receiver's device waits until ours has the data, and a hop."""
    tensors = kwargs.pop("tensor_dict") if "tensor_dict" in kwargs else args[0]
    ready_at = max(device.now(), device.streams.current.free_at) + current_rank().hop_s
    return wrapped({**tensors, READY_AT: ready_at}, *args[1:], **kwargs)


def _receive(wrapped: Callable[..., Any], _group: Any, args: Any, kwargs: Any) -> Any:
    tensors = wrapped(*args, **kwargs)
    if tensors:
        device.streams.current.wait(tensors.pop(READY_AT, 0.0))
    return tensors


def _launch(wrapped: Callable[..., Any], scheduler: Any, args: Any, kwargs: Any) -> Any:
    """Tell the model's device which slot and requests the next forward is for."""
    rank: Rank = current_rank()
    batch = compat.launched_batch(scheduler, args, kwargs)
    rank.slot = kwargs["mb_id"] if "mb_id" in kwargs else args[0]
    rank.rids = [request.rid for request in batch.reqs]
    rank.decoding = len(batch.decoding_reqs or ())
    rank.req_to_token = scheduler.req_to_token_pool.req_to_token
    return wrapped(*args, **kwargs)
