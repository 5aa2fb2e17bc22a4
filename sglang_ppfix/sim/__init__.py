"""The ring as a discrete-event simulator. It decides with ``sglang_ppfix.policy``."""

from typing import Any

from .engine import Engine
from .load import Load, burst, closed_loop, poisson
from .outcome import Outcome
from .policies import POLICIES, make
from .profile import CpuTimes, Profile, even_profile, split_layers
from .server import Server

__all__ = [
    "POLICIES",
    "CpuTimes",
    "Engine",
    "Load",
    "Outcome",
    "Profile",
    "Server",
    "burst",
    "closed_loop",
    "even_profile",
    "poisson",
    "simulate",
    "split_layers",
]


def simulate(
    server: Server,
    profile: Profile,
    load: Load,
    policy: str = "balanced",
    **options: Any,
) -> Outcome:
    """Run ``load`` on ``server`` under ``policy`` (see :data:`POLICIES`).

    Args:
        server: settings.
        profile: stage times.
        load: requests.
        policy: who decides.
        options: passed to :class:`Engine`.

    Raises:
        ValueError: an unknown policy, or arguments that do not fit together.
    """
    scheduler = make(policy, server, load)
    return Engine(server, profile, load, scheduler, policy=policy, **options).run()
