"""PP=2 must give the outputs of no PP, from evenly filled micro-batch slots.

Usage:
python3 -m unittest test_pp_even_slots.TestPPEvenSlots
"""

import os
import re
import tempfile
import unittest

import requests

from sglang.test.ci.ci_register import register_cuda_ci
from sglang.test.test_utils import (
    DEFAULT_SMALL_MODEL_NAME_FOR_TEST,
    DEFAULT_TIMEOUT_FOR_SERVER_LAUNCH,
    DEFAULT_URL_FOR_TEST,
    CustomTestCase,
    popen_launch_server,
    terminate_and_kill_process_tree,
)

register_cuda_ci(est_time=240, stage="base-b", runner_config="2-gpu-large")

NUM_REQUESTS = 8
MAX_NEW_TOKENS = 48


class TestPPEvenSlots(CustomTestCase):
    """A burst that fits into one micro-batch used to sit in one slot, and every stage
    idled half of the time. Outputs alone cannot show that, so the log is read, too."""

    def _run(self, pp_size):
        with (
            tempfile.TemporaryFile("w+") as stdout,
            tempfile.TemporaryFile("w+") as stderr,
        ):
            process = popen_launch_server(
                DEFAULT_SMALL_MODEL_NAME_FOR_TEST,
                DEFAULT_URL_FOR_TEST,
                timeout=DEFAULT_TIMEOUT_FOR_SERVER_LAUNCH,
                other_args=[
                    "--pp-size",
                    pp_size,
                    "--max-running-requests",
                    2 * NUM_REQUESTS,
                    "--decode-log-interval",
                    1,
                    # One message to the scheduler: the whole burst waits at once.
                    "--enable-tokenizer-batch-encode",
                    # Sums in bf16 depend on the batch size, and greedy tokens flip
                    # where two logits are close.
                    "--dtype",
                    "float32",
                    "--attention-backend",
                    "triton",
                    "--sampling-backend",
                    "pytorch",
                ],
                env={**os.environ, "SGLANG_ENABLE_PP_BALANCED_FILLING": "1"},
                return_stdout_stderr=(stdout, stderr),
            )
            try:
                response = requests.post(
                    f"{DEFAULT_URL_FOR_TEST}/generate",
                    json={
                        "text": [
                            f"{i} times {i + 3} is {i * (i + 3)}. A longer story:"
                            for i in range(NUM_REQUESTS)
                        ],
                        "sampling_params": {
                            "temperature": 0,
                            "max_new_tokens": MAX_NEW_TOKENS,
                            "ignore_eos": True,
                        },
                    },
                )
                response.raise_for_status()
            finally:
                terminate_and_kill_process_tree(process)
            outputs = [output["output_ids"] for output in response.json()]
            stdout.seek(0)
            stderr.seek(0)
            log = stdout.read() + stderr.read()
        sizes = re.findall(r"Decode batch.*?#running-req: (\d+)", log)
        return outputs, [int(size) for size in sizes]

    def test_pp_matches_non_pp_with_even_slots(self):
        base_outputs, base_sizes = self._run(pp_size=1)
        pp_outputs, pp_sizes = self._run(pp_size=2)
        print(f"largest micro-batch: no PP {max(base_sizes)}, PP2 {max(pp_sizes)}")
        self.assertEqual(max(base_sizes), NUM_REQUESTS)
        self.assertEqual(max(pp_sizes), NUM_REQUESTS // 2)
        self.assertEqual([len(ids) for ids in pp_outputs], [MAX_NEW_TOKENS] * 8)
        self.assertEqual(pp_outputs, base_outputs)


if __name__ == "__main__":
    unittest.main()
