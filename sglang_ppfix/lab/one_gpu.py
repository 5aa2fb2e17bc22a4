"""Real kernels: pipeline stages on one GPU, or one stage a card.

``SGLANG_PPFIX_LAB=one-gpu`` puts every stage on GPU 0 and carries what the stages send
each other through the CPU and gloo, because NCCL refuses two ranks on one GPU.
``SGLANG_PPFIX_LAB=gpus`` leaves placement and transport to SGLang and NCCL. Both
repair what SGLang 0.5.17 needs repaired for a pipeline on its triton backend. What
share of the GPU a stage gets is the caller's business (MPS).

Read in SGLang 0.5.17: ``parallel_state.init_model_parallel_group``,
``GroupCoordinator.send_tensor_dict`` and ``recv_tensor_dict``, ``Scheduler.__init__``,
``MHATokenToKVPool.get_value_buffer``, ``TritonAttnBackend.__init__``.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import wrapt

from .wrapping import wrap_target as _wrap

ONE_GPU = "one-gpu"
ONE_STAGE_A_GPU = "gpus"
WORDS = (ONE_GPU, ONE_STAGE_A_GPU)
"""Values of ``SGLANG_PPFIX_LAB`` that this module answers to."""

ON_GPU = "__ppfix_lab_on_gpu__"
"""Key of a message between stages: which of its tensors belong on the GPU."""

_PARALLEL_STATE = "sglang.srt.distributed.parallel_state"
_SCHEDULER = "sglang.srt.managers.scheduler"
_MEMORY_POOL = "sglang.srt.mem_cache.memory_pool"

_installed: list[str] = []


def install(word: str) -> None:
    """Hook SGLang's modules as soon as they are imported (idempotent).

    Args:
        word: one of :data:`WORDS`.
    """
    if _installed:
        return
    _installed.append(word)
    wrapt.register_post_import_hook(_hook_memory_pool, _MEMORY_POOL)
    if word == ONE_GPU:
        wrapt.register_post_import_hook(_hook_parallel_state, _PARALLEL_STATE)
        wrapt.register_post_import_hook(_hook_scheduler, _SCHEDULER)


def _hook_parallel_state(module: ModuleType) -> None:
    _wrap(module, "init_model_parallel_group", "use_pynccl", _without_pynccl)
    _wrap(module, "GroupCoordinator.send_tensor_dict", "tensor_dict", send)
    _wrap(module, "GroupCoordinator.recv_tensor_dict", "src", receive)


def _hook_scheduler(module: ModuleType) -> None:
    _wrap(module, "Scheduler.__init__", "gpu_id", on_gpu_0)


def _hook_memory_pool(module: ModuleType) -> None:
    _wrap(module, "MHATokenToKVPool.get_value_buffer", "layer_id", own_layer)


def _without_pynccl(
    wrapped: Callable[..., Any], _instance: Any, args: Any, kwargs: Any
) -> Any:
    # The PP group is the only one that insists on it, and it refuses a shared GPU.
    return wrapped(*args, **{**kwargs, "use_pynccl": False})


def on_gpu_0(
    wrapped: Callable[..., Any], _scheduler: Any, args: Any, kwargs: Any
) -> Any:
    """Around ``Scheduler.__init__(server_args, port_args, gpu_id, ...)``."""
    if "gpu_id" in kwargs:
        return wrapped(*args, **{**kwargs, "gpu_id": 0})
    return wrapped(*args[:2], 0, *args[3:], **kwargs)


def own_layer(wrapped: Callable[..., Any], pool: Any, args: Any, kwargs: Any) -> Any:
    """Around ``MHATokenToKVPool.get_value_buffer``.

    The triton backend asks for layer 0 on every stage, to learn a shape; a stage that
    has no layer 0 answers with its first.
    """
    layer = kwargs["layer_id"] if "layer_id" in kwargs else args[0]
    return wrapped(layer or pool.start_layer)


def send(wrapped: Callable[..., Any], _group: Any, args: Any, kwargs: Any) -> Any:
    """Around ``GroupCoordinator.send_tensor_dict``: CPU copies, which gloo sends.

    The copy waits for the forward that makes the tensor, as a send through NCCL does
    on the GPU but not on the CPU.
    """
    tensors = kwargs.pop("tensor_dict") if "tensor_dict" in kwargs else args[0]
    on_gpu = [key for key, value in tensors.items() if getattr(value, "is_cuda", False)]
    copies = {key: tensors[key].cpu() for key in on_gpu}
    return wrapped({**tensors, **copies, ON_GPU: on_gpu}, *args[1:], **kwargs)


def receive(wrapped: Callable[..., Any], _group: Any, args: Any, kwargs: Any) -> Any:
    """Around ``GroupCoordinator.recv_tensor_dict``: back to the GPU."""
    tensors = wrapped(*args, **kwargs)
    if tensors:
        for key in tensors.pop(ON_GPU, ()):
            tensors[key] = tensors[key].to("cuda", non_blocking=True)
    return tensors
