"""The filling rule. Pure: no sglang, no torch, no clock, no random numbers.

The hooks, the simulator and the generator of the diffs all import this package,
so the rule exists once.
"""

from .choosing import (
    Choice,
    StageTime,
    choose_slots,
    fit_stage_time,
    host_bound,
    predict_lap,
)
from .filling import TurnPlan, plan_turn, token_share
from .sizing import derive_cap, stock_cap, target_slots

__all__ = [
    "Choice",
    "StageTime",
    "TurnPlan",
    "choose_slots",
    "derive_cap",
    "fit_stage_time",
    "host_bound",
    "plan_turn",
    "predict_lap",
    "stock_cap",
    "target_slots",
    "token_share",
]
