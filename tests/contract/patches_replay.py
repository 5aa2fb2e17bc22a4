"""Replay random loads in SGLang's real event loop; print what it did, as JSON.

    python patches_replay.py UPSTREAM_TEST FIRST_SEED LAST_SEED

Every load twice, with and without the radix cache.

Runs under the tree that is first on the path, with the plugin if ``SGLANG_PPFIX``
asks for it. The loop is the one of the upstream test: real admission, KV accounting
and result processing, no forward. Imports nothing of the plugin.
"""

import json
import random
import sys
import types
from array import array
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed

# As in a scheduler process, where ranks find each other through this store.
torch.distributed.init_process_group(
    "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
)

from sglang.srt.plugins import load_plugins  # noqa: E402

load_plugins()

UPSTREAM = types.ModuleType("upstream_test")
UPSTREAM.__file__ = sys.argv[1]
exec(compile(Path(UPSTREAM.__file__).read_text(), "test", "exec"), UPSTREAM.__dict__)

from sglang.srt.managers.schedule_policy import SchedulePolicy  # noqa: E402
from sglang.srt.runtime_context import get_context  # noqa: E402

VOCABULARY = 1000


class Load:
    """A random server and what arrives at it, from one seed."""

    def __init__(self, seed):
        draw = self.draw = random.Random(seed)
        self.pp_size = draw.choice((2, 3, 4, 8))
        self.depth = draw.choice((0, 0, 0, 1, 3))
        self.rows = draw.choice((2, 5, 16, 32, 60))
        slots = self.pp_size + min(self.depth, 2)
        self.cap = draw.choice((-(-self.rows // slots), 1, self.rows))
        self.chunk = draw.choice((None, 16, 64))
        self.mixed = self.chunk is not None and draw.random() < 0.3
        self.priority = draw.random() < 0.3
        self.preemption = self.priority and draw.random() < 0.5
        self.lpm = draw.random() < 0.2
        # Small enough that decodes run out of it, large enough for any one request.
        self.kv_tokens = draw.choice((150, 250, 4000))
        # How much of max_new_tokens a request is expected to use, at first.
        self.ratio = draw.choice((0.1, 0.7))
        self.count = draw.randint(1, 24)
        self.iterations = 900
        self.arrivals = {}
        for index in range(self.count):
            at = draw.choice((0, 0, 1, draw.randrange(60)))
            self.arrivals.setdefault(at, []).append(self._request(index))
        self.aborts = {
            draw.randrange(200): f"r{draw.randrange(self.count)}"
            for _ in range(draw.choice((0, 0, 3)))
        }
        self.caps = (
            {draw.randrange(100): draw.randint(1, self.rows)}
            if draw.random() < 0.2
            else {}
        )
        # Drawn last: what was added later.
        self.align = draw.choice((None, None, 4))
        self.interval = draw.choice((0, 0, 0, 1, 3))

    def _request(self, index):
        draw = self.draw
        prompt = draw.choice((1, 4, 8, 20, 90))
        shared = draw.random() < 0.3
        head = 7 if shared else index + 10
        request = UPSTREAM._req(
            f"r{index}", prompt_len=prompt, max_new_tokens=draw.randint(1, 40)
        )
        request.origin_input_ids = array("q", [head] * prompt)
        request.origin_input_ids_unpadded = request.origin_input_ids
        request.sampling_params.ignore_eos = draw.random() < 0.5
        if self.priority:
            request.priority = draw.randrange(3)
        return request


def replay(seed, radix):
    """What the loop did with the load of a seed."""
    load = Load(seed)
    config = get_context().override_server_args(
        pp_size=load.pp_size,
        pp_async_batch_depth=load.depth,
        max_running_requests=load.rows,
        pp_max_micro_batch_size=load.cap,
    )
    server_args = config.install()
    try:
        loop = _loop(load, server_args)
        loop.tree_cache.disable = not radix
        loop.run(iterations=load.iterations)
    finally:
        config.restore()
    requests = [r for batch in load.arrivals.values() for r in batch]
    return {
        "prefills": loop.prefills,
        "decodes": loop.decodes,
        "aborted": loop.aborted,
        "outputs": {r.rid: list(r.output_ids) for r in requests},
        "finished": sum(r.finished() for r in requests),
        "retracted": sum(r.retraction_count for r in requests),
        "chunked": sum(r.extend_batch_idx > 1 for r in requests),
        "slots": loop.slot_sizes(),
    }


def _loop(load, server_args):
    loop = UPSTREAM._PPLoop(
        server_args=server_args,
        max_running_requests=load.rows,
        kv_tokens=load.kv_tokens,
        chunked_prefill_size=load.chunk,
    )
    loop.new_token_ratio_tracker.current = load.ratio
    loop.is_mixed_chunk = load.mixed
    loop.truncation_align_size = load.align
    loop.prefill_decode_interval = load.interval
    loop.prefill_decode_interval_min_bs = 0
    loop.enable_priority_scheduling = load.priority
    loop.enable_priority_preemption = load.preemption
    loop.priority_scheduling_preemption_threshold = 1
    loop.schedule_low_priority_values_first = False
    loop.policy = SchedulePolicy(
        "lpm" if load.lpm else "fcfs",
        loop.tree_cache,
        enable_hierarchical_cache=False,
        enable_priority_scheduling=load.priority,
        schedule_low_priority_values_first=False,
    )
    loop.lora_drainer = None
    loop.arrivals = load.arrivals

    requests = [req for batch in load.arrivals.values() for req in batch]

    def before(iteration):
        if iteration > max(load.arrivals) and all(r.finished() for r in requests):
            raise UPSTREAM._Stop
        if iteration in load.caps:
            get_context().override(
                "replay", pp_max_micro_batch_size=load.caps[iteration]
            )
        rid = load.aborts.get(iteration)
        for batch in (*loop.running_mbs, *loop.mbs):
            for req in () if batch is None else batch.reqs:
                if req.rid == rid and not req.finished():
                    req.to_finish = UPSTREAM.FINISH_ABORT()

    loop.at_iteration = before
    return loop


@contextmanager
def small_loop(pp_size, cap):
    """A loop of the patched scheduler: 8 rows, chunks of 16 tokens."""
    config = get_context().override_server_args(
        pp_size=pp_size, max_running_requests=8, pp_max_micro_batch_size=cap
    )
    try:
        yield UPSTREAM._PPLoop(
            server_args=config.install(),
            max_running_requests=8,
            kv_tokens=4000,
            chunked_prefill_size=16,
        )
    finally:
        config.restore()


def late_prompt(*, mixed=False, barred=False):
    """Iteration in which a prompt of two chunks starts; it comes in the 8th, to two
    slots, of which slot 0 decodes one request.

    Args:
        mixed: decodes take their part of a chunk.
        barred: SGLang skips it in slot 0, as it does where no adapter fits.
    """
    with small_loop(pp_size=2, cap=4) as loop:
        loop.is_mixed_chunk = mixed
        if barred:
            loop.enable_lora = True
            loop.can_schedule_lora_req = lambda req, loras: (
                req.rid != "late" or loop.running_batch is not loop.running_mbs[0]
            )
        loop.arrivals[0] = [UPSTREAM._req("first", max_new_tokens=100)]
        loop.arrivals[8] = [UPSTREAM._req("late", prompt_len=32)]
        loop.run(iterations=60)
    return next((at for at, _, rids in loop.prefills if "late" in rids), None)


def beside_a_cut_prompt():
    """Who is in the first prefill: alignment cuts a prompt so that the turn can take
    another one, and lands it two slots further on."""
    with small_loop(pp_size=4, cap=2) as loop:
        loop.truncation_align_size = 12
        prompts = {"cut": 40, "small": 4, "third": 40, "fourth": 40}
        loop.arrivals[0] = [
            UPSTREAM._req(rid, prompt_len=prompt) for rid, prompt in prompts.items()
        ]
        loop.run(iterations=20)
    return loop.prefills[0][2]


if __name__ == "__main__":
    seeds = range(int(sys.argv[2]), int(sys.argv[3]))
    json.dump(
        {
            "radix cache": [replay(seed, radix=True) for seed in seeds],
            "late": {
                "plain": late_prompt(),
                "mixed": late_prompt(mixed=True),
                "barred": late_prompt(barred=True),
            },
            "cut": beside_a_cut_prompt(),
            "no radix cache": [replay(seed, radix=False) for seed in seeds],
        },
        sys.stdout,
    )
