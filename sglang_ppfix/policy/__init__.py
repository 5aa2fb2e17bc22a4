"""The filling rule. Pure: no sglang, no torch, no clock, no random numbers.

The hooks, the simulator and the generator of the diffs all import this package,
so the rule exists once.
"""

from .choosing import least_lap, least_time
from .filling import (
    TurnPlan,
    good_starts,
    may_start,
    plan_turn,
    token_share,
    turns_more,
)
from .search import SlotSearch
from .sizing import derive_cap, stock_cap, target_slots
from .view import Move, View

__all__ = [
    "Move",
    "SlotSearch",
    "TurnPlan",
    "View",
    "derive_cap",
    "good_starts",
    "least_lap",
    "least_time",
    "may_start",
    "plan_turn",
    "stock_cap",
    "target_slots",
    "token_share",
    "turns_more",
]
