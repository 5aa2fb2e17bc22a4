"""Writes down, on PP rank 0 of a lab server, in which turn a request arrived and in
which one it was prefilled. Active only where against_lab.py started the server."""

import json
import os
from pathlib import Path

_FOLDER = os.environ.get("PPFIX_PROBE_FOLDER")


def _hook(module):
    import wrapt

    state = {"turn": -1, "file": None}

    def write(**entry):
        if state["file"] is not None:
            state["file"].write(json.dumps(entry) + "\n")

    def begin(wrapped, scheduler, args, kwargs):
        result = wrapped(*args, **kwargs)
        if scheduler.pp_group.rank_in_group == 0:
            path = Path(_FOLDER) / "turns.jsonl"
            state["file"] = path.open("w", buffering=1)
            write(
                slots=scheduler.pp_loop_size,
                rows=scheduler.max_running_requests,
                tokens=scheduler.max_total_num_tokens,
                chunk=scheduler.chunked_prefill_size,
                inputs=scheduler.max_prefill_tokens,
            )
        return result

    def arrive(wrapped, scheduler, args, kwargs):
        request = args[0] if args else kwargs["req"]
        # The turn that is about to schedule takes it in; a retracted one comes later.
        if not (kwargs.get("is_retracted") or args[1:2] == (True,)):
            write(turn=state["turn"] + 1, arrive=request.rid)
        return wrapped(*args, **kwargs)

    def schedule(wrapped, scheduler, args, kwargs):
        state["turn"] += 1
        plan = wrapped(*args, **kwargs)
        batch = plan.batch_to_run
        if batch is not None and batch.forward_mode.is_extend():
            rids = [request.rid for request in batch.reqs]
            write(
                turn=state["turn"],
                prefill=rids,
                tokens=batch.extend_num_tokens,
            )
        return plan

    name = "Scheduler."
    wrapt.wrap_function_wrapper(module, name + "init_pp_loop_state", begin)
    wrapt.wrap_function_wrapper(module, name + "_add_request_to_queue", arrive)
    wrapt.wrap_function_wrapper(module, name + "get_next_batch_to_run", schedule)


if _FOLDER:
    import wrapt

    wrapt.register_post_import_hook(_hook, "sglang.srt.managers.scheduler")
