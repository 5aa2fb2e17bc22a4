"""What happens once in a scheduler process: say what is on, open the ring."""

import logging
from collections.abc import Callable
from typing import Any

from sglang_ppfix import __version__
from sglang_ppfix.compat import scheduler as compat
from sglang_ppfix.settings import Settings

from . import agreement
from .ring import close_ring, open_ring

logger = logging.getLogger(__name__)

Wrapper = Callable[[Callable[..., Any], Any, Any, Any], Any]


def scheduler_init(settings: Settings, check: Callable[[], None]) -> Wrapper:
    """Wrapper around ``Scheduler.__init__``; logging is configured by then.

    Args:
        settings: of this process.
        check: ends the process, or warns, when another plugin took a hook away.
    """

    def wrapper(
        wrapped: Callable[..., Any], scheduler: Any, args: Any, kwargs: Any
    ) -> None:
        check()
        wrapped(*args, **kwargs)
        stages = scheduler.pp_group.world_size
        if stages > 1:
            agreement.check(settings, stages)
        reason = compat.out_of_scope(scheduler)
        if stages == 1:
            reason = "--pp-size 1: there is no pipeline"
        if reason is not None:
            logger.info("ppfix %s: stock behaviour, because of %s", __version__, reason)
            return
        logger.info(
            "ppfix %s: policy %s, SGLANG_PPFIX=%s",
            __version__,
            settings.policy.value,
            settings.mode.value,
        )

    return wrapper


def init_pp_loop_state(settings: Settings) -> Wrapper:
    """Wrapper around ``Scheduler.init_pp_loop_state``, which makes the slots."""

    def wrapper(
        wrapped: Callable[..., Any], scheduler: Any, args: Any, kwargs: Any
    ) -> Any:
        close_ring()
        result = wrapped(*args, **kwargs)
        if scheduler.pp_group.world_size > 1 and not compat.out_of_scope(scheduler):
            open_ring(scheduler, settings)
        return result

    return wrapper
