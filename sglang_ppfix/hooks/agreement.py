"""All ranks must run the same plugin with the same settings: agree at start-up.

A rank that fills its ring in another way picks another batch than its neighbours,
and the pipeline hangs or crashes (SGLang issues 28424, 34572).
"""

import json
import logging
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from sglang_ppfix import __version__
from sglang_ppfix.compat.release import installed_release
from sglang_ppfix.settings import Settings

logger = logging.getLogger(__name__)

# Every rank publishes as soon as the process group stands, and looks when its own
# start-up is over. Weights, graphs and kernels lie between, and may take one rank
# minutes longer than another; whoever is not there by then will not come.
TIMEOUT_S = 10

Wrapper = Callable[[Callable[..., Any], Any, Any, Any], Any]


def init_torch_distributed(settings: Settings) -> Wrapper:
    """Wrapper around ``ModelRunner.init_torch_distributed``: publish what this runs."""

    def wrapper(
        wrapped: Callable[..., Any], runner: Any, args: Any, kwargs: Any
    ) -> Any:
        result = wrapped(*args, **kwargs)
        _store().set(_key(_rank()), json.dumps(_card(settings)))
        return result

    return wrapper


def check(settings: Settings, pp_size: int) -> None:
    """Compare with every other rank.

    Raises:
        SystemExit: a rank runs no plugin, or another; the line names it.
    """
    import torch

    store, world = _store(), torch.distributed.get_world_size()
    ours = _card(settings)
    missing, different = [], []
    try:
        store.wait([_key(r) for r in range(world)], timedelta(seconds=TIMEOUT_S))
    except RuntimeError:  # torch.distributed.DistStoreError: some are missing
        missing = [r for r in range(world) if not store.check([_key(r)])]
    for rank in range(world):
        if rank in missing:
            continue
        theirs = json.loads(store.get(_key(rank)))
        for name in ours:
            if name != "host" and theirs.get(name) != ours[name]:
                different.append(
                    f"{_place(rank, world, pp_size)} on {theirs.get('host')} has "
                    f"{name} {theirs.get(name)!r}, here it is {ours[name]!r}"
                )
    if missing:
        names = ", ".join(_place(rank, world, pp_size) for rank in missing)
        different.append(
            f"{names} does not run the plugin: set SGLANG_PPFIX on every node"
        )
    if different:
        raise SystemExit(
            f"sglang-ppfix {__version__}: the ranks do not agree, and the pipeline "
            f"would hang; the server ends: {'; '.join(different)}"
        )


def _card(settings: Settings) -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "plugin version": __version__,
        "sglang release": str(installed_release()),
        **settings.shared(),
    }


def _store() -> Any:
    from torch.distributed import distributed_c10d

    return distributed_c10d._get_default_store()


def _rank() -> int:
    import torch

    return int(torch.distributed.get_rank())


def _key(rank: int) -> str:
    return f"sglang_ppfix/{rank}"


def _place(rank: int, world: int, pp_size: int) -> str:
    tp_size = world // pp_size
    return f"PP{rank // tp_size} TP{rank % tp_size}"
