"""The built-in load: bursts of the same requests, again and again."""

import asyncio
import random
import time

from sglang_ppfix.remote import RemoteServer

#: Token ids that every vocabulary holds; what they mean does not matter.
TOKENS = range(100, 500)


async def burst(
    server: RemoteServer, clients: int, prompt_tokens: int, output_tokens: int
) -> tuple[int, float]:
    """Send ``clients`` requests at once; tokens made and seconds taken.

    Prompts are drawn anew each time, so that a prefix cache helps neither side.
    """
    prompts = [random.choices(TOKENS, k=prompt_tokens) for _ in range(clients)]
    start = time.monotonic()
    answers = await asyncio.gather(
        *(_generate(server, prompt, output_tokens) for prompt in prompts)
    )
    return sum(answers), time.monotonic() - start


async def _generate(server: RemoteServer, prompt: list[int], output_tokens: int) -> int:
    body = {
        "input_ids": prompt,
        "sampling_params": {
            "max_new_tokens": output_tokens,
            "temperature": 1.0,
            "ignore_eos": True,
        },
    }
    answer = await server.request("POST", "/generate", body, timeout_s=3600)
    return int(answer["meta_info"]["completion_tokens"])
