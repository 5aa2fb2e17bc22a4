"""The PP event loop must spread requests over its micro-batch slots.

A slot used to take every request that fits when its turn comes, and requests stay
in their slot: the first slots held all of them and the other stages idled.

The real event loop, admission, KV accounting and result processing run here; only
the forward and the communication between stages are stubs, so one iteration is one
turn of one slot and every interleaving is exact.

Usage:
python3 -m unittest test_pp_balanced_filling.TestPPBalancedFilling
"""

import os
import unittest
from array import array
from types import SimpleNamespace
from unittest.mock import MagicMock, patch

import torch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

from sglang.srt.disaggregation.utils import DisaggregationMode
from sglang.srt.managers.schedule_batch import FINISH_ABORT, Req
from sglang.srt.managers.schedule_policy import SchedulePolicy
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.managers.scheduler_components.batch_result_processor import (
    SchedulerBatchResultProcessor,
)
from sglang.srt.managers.scheduler_components.new_token_ratio_tracker import (
    NewTokenRatioTracker,
)
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool
from sglang.srt.mem_cache.radix_cache import RadixCache
from sglang.srt.observability.metrics_collector import SchedulerStats
from sglang.srt.runtime_context import get_context, get_parallel
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.server_args import ServerArgs
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

register_cpu_ci(est_time=25, suite="base-a-test-cpu")

VOCAB_SIZE = 1000


class _Stop(Exception):
    pass


class _Sink:
    """Takes every call and remembers none."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def __getattr__(self, name):
        return lambda *args, **kwargs: None


class _PPLoop(Scheduler):
    """The first PP rank of a pipeline. Features it is not given are switched off."""

    def __init__(
        self,
        *,
        server_args,
        max_running_requests,
        kv_tokens,
        chunked_prefill_size=None,
    ):
        self.server_args = server_args
        pp_size = get_parallel().pp_size
        self.pp_group = SimpleNamespace(
            world_size=pp_size, rank_in_group=0, is_first_rank=True, is_last_rank=True
        )
        self.tp_group = SimpleNamespace(rank_in_group=0)
        self.spec_algorithm = SpeculativeAlgorithm.NONE
        self.disaggregation_mode = DisaggregationMode.NULL
        self.device = "cpu"
        self.page_size = 1
        self.max_running_requests = max_running_requests
        self.max_total_num_tokens = kv_tokens
        self.kv_shard_widening = 1
        self.chunked_prefill_size = chunked_prefill_size
        self.max_prefill_tokens = 16384
        self.max_prefill_bs = 0
        self.prefill_decode_interval = 0
        self._prefill_decode_interval_remaining = 0
        self._init_memory(kv_tokens)
        self.policy = SchedulePolicy("fcfs", self.tree_cache, False, False, False)
        self.new_token_ratio_tracker = NewTokenRatioTracker.from_config()
        self.model_config = SimpleNamespace(
            vocab_size=VOCAB_SIZE,
            is_encoder_decoder=False,
            self_opened_think_start_ids=None,
            think_end_id=None,
            hf_eos_token_id=None,
        )
        self.init_running_status()
        self._init_collaborators()

        self.iteration = -1
        self.arrivals = {}
        self.aborted = []
        # (iteration, mb_id, rids) of every forward.
        self.prefills = []
        self.decodes = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return None

    def _init_memory(self, kv_tokens):
        self.req_to_token_pool = ReqToTokenPool(
            size=self.max_running_requests,
            max_context_len=1024,
            device=self.device,
            enable_memory_saver=False,
        )
        kv_pool = MHATokenToKVPool(
            kv_tokens,
            page_size=1,
            dtype=torch.float32,
            head_num=1,
            head_dim=1,
            layer_num=1,
            device=self.device,
            enable_memory_saver=False,
        )
        self.token_to_kv_pool_allocator = TokenToKVPoolAllocator(
            kv_tokens,
            dtype=torch.float32,
            device=self.device,
            kvcache=kv_pool,
            need_sort=False,
        )
        self.tree_cache = RadixCache(
            CacheInitParams(
                disable=False,
                req_to_token_pool=self.req_to_token_pool,
                token_to_kv_pool_allocator=self.token_to_kv_pool_allocator,
                page_size=1,
            )
        )

    def _init_collaborators(self):
        self.beam_coordinator = _Sink(
            pending_member_rows=lambda batch: 0, commit_decode=lambda batch: set()
        )
        self.grammar_manager = SimpleNamespace(has_waiting_grammars=lambda: False)
        self.tp_worker = SimpleNamespace(
            model_runner=SimpleNamespace(
                attn_backend=SimpleNamespace(), prefill_aware_swa=False
            )
        )
        self.dp_attn_adapter = SimpleNamespace(
            maybe_prepare_mlp_sync_batch=lambda batch, need_sync=None: batch,
            maybe_convert_decode_to_extend=lambda batch: batch,
        )
        self.ngram_embedding_manager = SimpleNamespace(
            prepare_for_forward=lambda batch, chunked_req: batch
        )
        self.load_inquirer = SimpleNamespace(
            _get_num_pending_tokens=lambda chunk_deduct: 0
        )
        self.metrics_reporter = _Sink(
            enable_metrics=False,
            num_generated_tokens=0,
            forward_ct_decode=0,
            recent_cache_hit_rate=0.0,
        )
        self.batch_result_processor = SchedulerBatchResultProcessor(
            is_generation=True,
            disaggregation_mode=self.disaggregation_mode,
            enable_overlap=False,
            enable_overlap_mlx=False,
            model_config=self.model_config,
            token_to_kv_pool_allocator=self.token_to_kv_pool_allocator,
            tree_cache=self.tree_cache,
            hisparse_coordinator=None,
            req_to_token_pool=self.req_to_token_pool,
            decode_offload_manager=None,
            metrics_collector=None,
            metrics_reporter=self.metrics_reporter,
            draft_worker=None,
            model_worker=None,
            logprob_result_processor=None,
            output_streamer=_Sink(),
            beam_coordinator=self.beam_coordinator,
            abort_request=None,
        )

    def run(self, iterations):
        self.stop_at = iterations
        try:
            self.event_loop_pp()
        except _Stop:
            pass

    def slot_sizes(self):
        return [len(batch.reqs) for batch in self.running_mbs]

    def at_iteration(self, iteration):
        """Override point: what happens before an iteration."""

    def ingest_requests(self):
        self.iteration += 1
        if self.iteration == self.stop_at:
            raise _Stop
        self.at_iteration(self.iteration)
        for req in self.arrivals.get(self.iteration, []):
            self._add_request_to_queue(req)
        return []

    def _pp_launch_batch(self, mb_id, cur_batch, *args):
        log = self.prefills if cur_batch.forward_mode.is_extend() else self.decodes
        log.append((self.iteration, mb_id, [req.rid for req in cur_batch.reqs]))
        cur_batch.input_ids = None
        return None, None

    def _pp_process_batch_result(self, batch, output_result):
        result = GenerationBatchResult(
            logits_output=None,
            next_token_ids=torch.arange(len(batch.reqs)),
            can_run_cuda_graph=False,
        )
        if batch.forward_mode.is_decode():
            self.batch_result_processor.process_batch_result_decode(batch, result)
        else:
            self.batch_result_processor.process_batch_result_prefill(batch, result)

    def send_abort_output(self, abort_req, req):
        self.aborted.append(req.rid)

    def _pp_recv_proxy_tensors(self):
        return None

    def _pp_commit_proxy_send_work(self):
        pass

    def _pp_commit_send_output_work_and_preprocess_output_tensors(self, *args):
        return None, None, SimpleNamespace(synchronize=lambda: None)

    def on_idle(self):
        pass


def _req(rid, *, prompt_len=8, max_new_tokens=64):
    sampling_params = SamplingParams(max_new_tokens=max_new_tokens, ignore_eos=True)
    sampling_params.normalize(None)
    # Prompts share no prefix, so prefix caching cannot shorten one.
    prompt = array("q", [hash(rid) % VOCAB_SIZE] + [0] * (prompt_len - 1))
    return Req(rid, "", prompt, sampling_params, vocab_size=VOCAB_SIZE)


class TestPPBalancedFilling(CustomTestCase):
    def setUp(self):
        env = patch.dict(os.environ, {"SGLANG_ENABLE_PP_BALANCED_FILLING": "1"})
        env.start()
        self.addCleanup(env.stop)

    def _loop(
        self,
        *,
        pp_size,
        max_running_requests,
        cap=None,
        pp_async_batch_depth=0,
        kv_tokens=8192,
        **kwargs,
    ):
        config = get_context().override_server_args(
            pp_size=pp_size,
            pp_async_batch_depth=pp_async_batch_depth,
            max_running_requests=max_running_requests,
            pp_max_micro_batch_size=cap or max_running_requests // pp_size,
        )
        server_args = config.install()
        self.addCleanup(config.restore)
        return _PPLoop(
            server_args=server_args,
            max_running_requests=max_running_requests,
            kv_tokens=kv_tokens,
            **kwargs,
        )

    def test_burst_is_spread(self):
        """A burst smaller than one micro-batch must not sit in one slot."""
        loop = self._loop(pp_size=4, max_running_requests=32)
        loop.arrivals[0] = [_req(f"r{i}") for i in range(8)]
        loop.run(iterations=24)
        self.assertEqual(loop.slot_sizes(), [2, 2, 2, 2])

    def test_burst_starts_within_one_lap(self):
        """Spreading must not hold a request back that an empty slot could take."""
        loop = self._loop(pp_size=4, max_running_requests=32)
        loop.arrivals[0] = [_req(f"r{i}") for i in range(4)]
        loop.run(iterations=8)
        self.assertEqual([mb_id for _, mb_id, _ in loop.prefills], [0, 1, 2, 3])

    def test_arrivals_once_a_lap_are_spread(self):
        """A slot whose turn follows every arrival must leave some to the others."""
        loop = self._loop(pp_size=4, max_running_requests=32)
        for lap in range(8):
            loop.arrivals[4 * lap] = [_req(f"r{lap}")]
        loop.run(iterations=48)
        self.assertEqual(loop.slot_sizes(), [2, 2, 2, 2])

    def test_slots_of_async_depth_are_filled(self):
        """One slot of async depth must be filled like those of the stages."""
        loop = self._loop(pp_size=4, max_running_requests=40, pp_async_batch_depth=1)
        loop.arrivals[0] = [_req(f"r{i}") for i in range(10)]
        loop.run(iterations=30)
        self.assertEqual(loop.slot_sizes(), [2, 2, 2, 2, 2])

    def test_cap_of_the_user_is_obeyed(self):
        """The share never lifts pp_max_micro_batch_size, and a cap that rises later
        must reopen slots that it had closed, without waiting for one to finish."""
        loop = self._loop(pp_size=2, max_running_requests=8, cap=1)
        loop.arrivals[0] = [_req(f"r{i}") for i in range(4)]
        sizes = []

        def raise_cap(iteration):
            if iteration == 12:
                sizes.append(loop.slot_sizes())
                get_context().override("test", pp_max_micro_batch_size=4)

        loop.at_iteration = raise_cap
        loop.run(iterations=24)
        self.assertEqual(sizes, [[1, 1]])
        self.assertEqual(loop.slot_sizes(), [2, 2])

    def test_chunked_prefill_goes_on_and_counts_once(self):
        """A chunked prefill must get every turn until it ends, wherever it ends, and
        must take exactly one place."""
        loop = self._loop(pp_size=4, max_running_requests=32, chunked_prefill_size=64)
        loop.arrivals[0] = [_req("long", prompt_len=200)]
        loop.arrivals[1] = [_req(f"r{i}") for i in range(7)]
        loop.run(iterations=60)
        chunks = [iteration for iteration, _, rids in loop.prefills if "long" in rids]
        self.assertEqual(chunks, [0, 1, 2, 3])
        self.assertEqual(loop.slot_sizes(), [2, 2, 2, 2])

    def test_chunked_prompts_land_evenly(self):
        """A request decodes in the slot of its last chunk: that slot needs the room,
        not the one in which the prompt starts."""
        for prompt_len in (100, 128, 250):
            with self.subTest(prompt_len=prompt_len):
                loop = self._loop(
                    pp_size=4, max_running_requests=32, chunked_prefill_size=64
                )
                loop.arrivals[0] = [
                    _req(f"r{i}", prompt_len=prompt_len) for i in range(8)
                ]
                loop.run(iterations=80)
                self.assertEqual(loop.slot_sizes(), [2, 2, 2, 2])

    def test_lone_request_is_not_aborted_for_kv(self):
        """KV that the other slots will free must not cost a slot its only request."""
        loop = self._loop(pp_size=4, max_running_requests=4, kv_tokens=150)
        reqs = [_req(f"r{i}") for i in range(4)]
        loop.arrivals[0] = reqs
        loop.run(iterations=1500)
        self.assertEqual(loop.aborted, [])
        for req in reqs:
            self.assertTrue(req.finished())
            self.assertNotIsInstance(req.finished_reason, FINISH_ABORT)
            self.assertEqual(len(req.output_ids), 64)


class TestPPRunningReqs(CustomTestCase):
    def test_loads_count_every_slot_at_every_moment(self):
        """/v1/loads must not turn with the ring: it counts the requests of all slots,
        each once, those whose prefill is in flight and a chunked one included."""
        config = get_context().override_server_args(
            pp_size=4, pp_max_micro_batch_size=4, max_running_requests=16
        )
        self.addCleanup(config.restore)
        loop = _PPLoop(
            server_args=config.install(),
            max_running_requests=16,
            kv_tokens=8192,
            chunked_prefill_size=64,
        )
        loop.metrics_reporter.stats = SchedulerStats()
        pool_stats = SimpleNamespace(get_kv_token_stats=lambda: (0, 0.0))
        loop.pool_stats_observer = SimpleNamespace(get_pool_stats=lambda: pool_stats)
        loop.init_load_inquirer()
        loop.arrivals[0] = [_req("long", prompt_len=200)]
        loop.arrivals[6] = [_req(f"r{i}") for i in range(15)]
        reported, launched = [], []

        def report(iteration):
            reported.append(loop.load_inquirer.get_loads().num_running_reqs)
            rids = {rid for _, _, rids in loop.prefills for rid in rids}
            launched.append(len(rids))

        loop.at_iteration = report
        with get_parallel().override(dp_rank=None):
            loop.run(iterations=40)
        self.assertEqual(launched[-1], 16)
        self.assertEqual(reported, launched)


class _Startup(Scheduler):
    """A scheduler that gets its model worker ready, and has no model."""

    def __init__(self, *, server_args, max_running_requests):
        self.server_args = server_args
        self.spec_algorithm = SpeculativeAlgorithm.NONE
        self.model_config = SimpleNamespace(context_len=1024)
        self.draft_worker = None
        self.enable_overlap = False
        self.enable_unified_memory = False
        self.tp_worker = MagicMock()
        self.tp_worker.model_runner.device = "cpu"
        self.tp_worker.model_runner.token_to_kv_pool.post_capture_active = False
        self.tp_worker.get_worker_info.return_value = (
            8192,  # max_total_num_tokens
            16384,  # max_prefill_tokens
            max_running_requests,
            None,  # max_queued_requests
            1024,  # max_req_len
            1024,  # max_req_input_len
            0,  # random_seed
            "cpu",
            None,  # forward_stream
            *[None] * 3,
        )

    def init_tp_model_worker(self):
        pass

    def maybe_init_draft_worker(self):
        pass

    def init_memory_pools(self):
        pass

    def init_all_attention_backends(self):
        pass

    def init_all_cuda_graphs(self):
        pass


class TestPPMicroBatchSizeDefault(CustomTestCase):
    def _derive(self, *, max_running_requests, pp_size, pp_async_batch_depth=0):
        scheduler_module = "sglang.srt.managers.scheduler"
        tp_group = SimpleNamespace(world_size=1, rank_in_group=0, cpu_group=None)
        pp_group = SimpleNamespace(world_size=pp_size, rank_in_group=0)
        server_args = ServerArgs(
            model_path="dummy",
            pp_size=pp_size,
            pp_async_batch_depth=pp_async_batch_depth,
        )
        with (
            get_context().override_server_args(
                pp_size=pp_size,
                pp_async_batch_depth=pp_async_batch_depth,
                pp_max_micro_batch_size=None,
            ),
            get_parallel().override(
                tp_rank=0,
                tp_group=tp_group,
                attn_tp_group=tp_group,
                attn_cp_group=tp_group,
                pp_group=pp_group,
                world_group=pp_group,
            ),
            patch(f"{scheduler_module}.get_dp_tp_group", return_value=tp_group),
            patch(f"{scheduler_module}.prewarm_graph_pool_borrow"),
            patch(f"{scheduler_module}.get_available_gpu_memory", return_value=1.0),
        ):
            scheduler = _Startup(
                server_args=server_args, max_running_requests=max_running_requests
            )
            scheduler.init_model_worker()
            return get_parallel().pp_max_micro_batch_size

    def test_no_row_is_lost(self):
        """The slots together must hold max_running_requests, also where pp_size does
        not divide it."""
        for rows, pp_size in [(60, 8), (7, 4), (3, 4)]:
            with self.subTest(rows=rows, pp_size=pp_size):
                cap = self._derive(max_running_requests=rows, pp_size=pp_size)
                self.assertGreaterEqual(cap * pp_size, rows)
                self.assertLess((cap - 1) * pp_size, rows)

    def test_slots_of_async_depth_get_rows(self):
        """pp_size slots must not take every row when async depth adds slots."""
        cap = self._derive(max_running_requests=32, pp_size=4, pp_async_batch_depth=2)
        self.assertLess(4 * cap, 32)
        self.assertGreaterEqual(6 * cap, 32)


if __name__ == "__main__":
    unittest.main()
