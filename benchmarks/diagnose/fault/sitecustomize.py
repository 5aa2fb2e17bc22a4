"""A fault for the known-truth runs: one PP rank admits one request less.

Python imports this module at start where its folder is on ``PYTHONPATH``. It hooks
``Scheduler.get_num_allocatable_reqs`` on the rank that ``PPFIX_TRUTH_WRONG_RANK``
names, from its 41st call on, as a decision that depends on the rank would.
"""

import os
from typing import Any

import wrapt


@wrapt.when_imported("sglang.srt.managers.scheduler")
def _hook(module: Any) -> None:
    wrong = int(os.environ.get("PPFIX_TRUTH_WRONG_RANK", "-1"))
    calls = [0]

    def allocatable(wrapped: Any, scheduler: Any, args: Any, kwargs: Any) -> Any:
        number = wrapped(*args, **kwargs)
        calls[0] += 1
        mine = scheduler.pp_group.rank_in_group == wrong
        return number - 1 if mine and calls[0] > 40 and number > 1 else number

    wrapt.wrap_function_wrapper(
        module, "Scheduler.get_num_allocatable_reqs", allocatable
    )
