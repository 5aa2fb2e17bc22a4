"""A fault for the known-truth runs: one PP rank admits one request less.

Python imports this module at start where its folder is on ``PYTHONPATH``. It hooks
``Scheduler.get_num_allocatable_reqs`` on the rank that ``PPFIX_TRUTH_WRONG_RANK``
names, from its 41st call on, as a decision that depends on the rank would. It bites
where a slot fills up to its cap.

The toy model refuses other tokens than its own, and would end the server before the
first wrong line is printed. Real models do not look, so here it is made to go on.
"""

import os
from typing import Any

import wrapt

_WRONG = int(os.environ.get("PPFIX_TRUTH_WRONG_RANK", "-1"))


def _is_wrong(scheduler: Any) -> bool:
    return bool(scheduler.pp_group.rank_in_group == _WRONG)


@wrapt.when_imported("sglang.srt.managers.scheduler")
def _admit_less(module: Any) -> None:
    calls = [0]

    def allocatable(wrapped: Any, scheduler: Any, args: Any, kwargs: Any) -> Any:
        number = wrapped(*args, **kwargs)
        calls[0] += 1
        wrong = _is_wrong(scheduler) and calls[0] > 40
        return max(number - 1, 0) if wrong else number

    wrapt.wrap_function_wrapper(
        module, "Scheduler.get_num_allocatable_reqs", allocatable
    )


@wrapt.when_imported("sglang.srt.managers.scheduler_pp_mixin")
def _take_own_results(module: Any) -> None:
    def prepare(wrapped: Any, scheduler: Any, args: Any, kwargs: Any) -> Any:
        batch, metadata, outputs = args
        ids, size = outputs["next_token_ids"], len(batch.reqs)
        if _is_wrong(scheduler) and len(ids) != size:
            own = ids.new_ones(size)
            own[: len(ids)] = ids[:size]
            outputs = type(outputs)({**outputs.tensors, "next_token_ids": own})
        return wrapped(batch, metadata, outputs, **kwargs)

    wrapt.wrap_function_wrapper(
        module, "SchedulerPPMixin._pp_prep_batch_result", prepare
    )


@wrapt.when_imported("sglang_ppfix.lab.models.toy")
def _go_on_with_other_tokens(module: Any) -> None:
    def forward(wrapped: Any, model: Any, args: Any, kwargs: Any) -> Any:
        received = kwargs.get("pp_proxy_tensors")
        if received is not None:
            tokens, theirs = args[0], received["hidden_states"]
            rows = min(len(tokens), len(theirs))
            own = theirs.new_zeros((len(tokens), theirs.shape[1]))
            own[:rows] = theirs[:rows]
            own[:, 1] = tokens
            kwargs["pp_proxy_tensors"] = type(received)({"hidden_states": own})
        return wrapped(*args, **kwargs)

    wrapt.wrap_function_wrapper(module, "ToyPipelineForCausalLM.forward", forward)
