"""Policies by name."""

from collections.abc import Callable

from .experiments import Gathered
from .filling import Balanced, CeilingShare, StaticCap
from .load import Load
from .pooled import DecodeCap, ExactSplit, PooledIdeal, TokenThrottling
from .scheduler import Scheduler
from .server import Server

Maker = Callable[[Server, Load], Scheduler]

#: The first four keep SGLang's scheduler and could run today; the next four deal
#: decodes anew every turn; the last three are experiments on top of balanced.
POLICIES: dict[str, Maker] = {
    "stock": lambda server, load: Scheduler(server),
    "balanced": lambda server, load: Balanced(server),
    # Who does not know the concurrency takes half of the rows for it.
    "static": lambda server, load: StaticCap(
        server, load.clients or max(server.max_running_requests // 2, 1)
    ),
    "ceil": lambda server, load: CeilingShare(server),
    "vllm": lambda server, load: DecodeCap(server),
    "gllm": lambda server, load: TokenThrottling(server),
    "td-pipe": lambda server, load: ExactSplit(server),
    "pooled": lambda server, load: PooledIdeal(server),
    "gather": lambda server, load: Gathered(server),
}


def make(policy: str, server: Server, load: Load) -> Scheduler:
    """The scheduler of ``policy`` for ``server`` under ``load``.

    Raises:
        ValueError: no policy of that name.
    """
    try:
        maker = POLICIES[policy]
    except KeyError:
        allowed = ", ".join(POLICIES)
        raise ValueError(f"policy {policy!r}: allowed are {allowed}") from None
    return maker(server, load)
