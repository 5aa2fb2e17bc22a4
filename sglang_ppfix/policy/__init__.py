"""The filling rule. Pure: no sglang, no torch, no clock, no random numbers.

The hooks, the simulator and the generator of the diffs all import this package,
so the rule exists once.
"""

from .filling import TurnPlan, plan_turn, token_share
from .sizing import derive_cap, stock_cap, target_slots

__all__ = [
    "TurnPlan",
    "derive_cap",
    "plan_turn",
    "stock_cap",
    "target_slots",
    "token_share",
]
