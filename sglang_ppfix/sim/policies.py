"""Policies by name."""

from collections.abc import Callable

from .filling import Balanced, CeilingShare, StaticCap
from .gathering import Gathered
from .load import Load
from .pooled import DecodeCap, ExactSplit, PooledIdeal, TokenThrottling
from .scheduler import Scheduler
from .server import Server

Maker = Callable[[Server, Load], Scheduler]

#: The first four keep SGLang's scheduler and could run today; the next four deal
#: decodes anew every turn; the last is an experiment on top of balanced.
POLICIES: dict[str, Maker] = {
    "stock": lambda server, load: Scheduler(server),
    "balanced": lambda server, load: Balanced(server),
    "static": lambda server, load: StaticCap(server, load.concurrency),
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
