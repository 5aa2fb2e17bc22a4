"""Show on stock SGLang what ``docs/upstream-issues.md`` says; print it as JSON.

    python patches_issues.py UPSTREAM_TEST

Real scheduler methods, in the loop of the upstream test. Imports nothing of ours.
"""

import json
import sys
import types
from pathlib import Path

UPSTREAM = types.ModuleType("upstream_test")
UPSTREAM.__file__ = sys.argv[1]
exec(compile(Path(UPSTREAM.__file__).read_text(), "test", "exec"), UPSTREAM.__dict__)

from sglang.srt.managers.schedule_policy import PrefillAdder  # noqa: E402
from sglang.srt.managers.scheduler_components.internal_state import (  # noqa: E402
    SchedulerInternalStateController,
    UpdateRejected,
)
from sglang.srt.runtime_context import get_context  # noqa: E402


def loop(pp_size, rows, cap, kv_tokens=8192):
    """A loop with its configuration, and what takes the configuration away."""
    config = get_context().override_server_args(
        pp_size=pp_size, max_running_requests=rows, pp_max_micro_batch_size=cap
    )
    made = UPSTREAM._PPLoop(
        server_args=config.install(), max_running_requests=rows, kv_tokens=kv_tokens
    )
    return made, config


def penalties_after_retraction():
    """Penalty on the token that was put out, just before and just after."""
    made, config = loop(pp_size=2, rows=4, cap=4)
    request = UPSTREAM._req("r", max_new_tokens=40)
    request.sampling_params.frequency_penalty = 1.0
    made.arrivals[0] = [request]
    made._pp_process_batch_result = _same_token(made._pp_process_batch_result)
    made.run(iterations=21)
    before, put_out = _penalty(request, made), len(request.output_ids)
    (batch,) = (b for b in made.running_mbs if b.reqs)
    batch.release_req(0, 0)
    batch.filter_batch(keep_indices=[])
    made._add_request_to_queue(request, is_retracted=True)
    made.iteration, made.arrivals = -1, {}
    made.run(iterations=9)
    after = _penalty(request, made)
    config.restore()
    return {"put_out": put_out, "before": before, "after": after}


def _same_token(process):
    def processed(batch, result):
        process(batch, result)
        for req in batch.reqs:
            req.output_ids[-1] = 7

    return processed


def _penalty(request, made):
    from sglang.srt.sampling.penaltylib import BatchedFrequencyPenalizer

    for batch in made.running_mbs:
        if request in batch.reqs:
            orchestrator = batch.sampling_info.penalizer_orchestrator
            penalizer = orchestrator.penalizers[BatchedFrequencyPenalizer]
            row = batch.reqs.index(request)
            return float(penalizer.cumulated_frequency_penalties[row, 7])
    return None


def simulated_states():
    """What ``add_one_req_ignore_eos`` keeps sorted by tokens left, in its order."""
    made, config = loop(pp_size=2, rows=8, cap=8)
    made.tree_cache.disable = True
    adder = PrefillAdder(
        *(1, made.tree_cache, made.token_to_kv_pool_allocator, made.running_batch),
        *(1.0, 4096, None),
        max_running_requests=8,
    )
    for number, tokens in enumerate((20, 10, 40)):
        request = UPSTREAM._req(f"r{number}", max_new_tokens=tokens)
        request.init_next_round_input(made.tree_cache)
        adder.add_one_req_ignore_eos(request)
    config.restore()
    return [left for left, _ in adder.req_states]


def caps_that_may_be_set(rows, pp_size):
    """Values that ``/set_internal_state`` accepts for ``pp_max_micro_batch_size``."""
    made, config = loop(pp_size, rows, max(rows // pp_size, 1))
    controller = SchedulerInternalStateController.__new__(
        SchedulerInternalStateController
    )
    controller.scheduler = made
    accepted = []
    for value in range(1, rows + 1):
        try:
            controller._validate_pp_micro_batch_size("pp_max_micro_batch_size", value)
            accepted.append(value)
        except UpdateRejected:
            pass
    config.restore()
    return accepted


def allocatable_without_pipeline():
    """Requests that one turn may take with ``--pp-size 1`` and the cap set to 1."""
    made, config = loop(pp_size=1, rows=8, cap=1)
    allowed = made.get_num_allocatable_reqs(0, running_batch=made.running_batch)
    config.restore()
    return allowed


def deferred_rounds(pp_size):
    """Turns of each slot that ``--prefill-decode-interval 4`` holds prefill back."""
    made, config = loop(pp_size, rows=8, cap=8)
    made.prefill_decode_interval = made._prefill_decode_interval_remaining = 4
    made.prefill_decode_interval_min_bs = 0
    deferred = [
        made._should_defer_prefill(made.running_batch) for _ in range(4 * pp_size)
    ]
    config.restore()
    return [sum(deferred[slot::pp_size]) for slot in range(pp_size)]


if __name__ == "__main__":
    json.dump(
        {
            "penalties": penalties_after_retraction(),
            "simulated_states": simulated_states(),
            "caps_60_over_8": caps_that_may_be_set(60, 8),
            "caps_3_over_4": caps_that_may_be_set(3, 4),
            "allocatable_without_pipeline": allocatable_without_pipeline(),
            "deferred_rounds": deferred_rounds(4),
        },
        sys.stdout,
    )
