"""Two machines and twenty loads on which policies are compared."""

from dataclasses import replace

import numpy as np

from sglang_ppfix.sim import Load, Profile, Server, burst, closed_loop, poisson
from sglang_ppfix.sim.curve import Affine, Points
from sglang_ppfix.sim.law import even_sizes, throughput
from sglang_ppfix.sim.load import lengths
from sglang_ppfix.sim.presets import the_case
from sglang_ppfix.sim.profile import CpuTimes, split_layers

# Decode of the whole model by batch size, ms: Qwen2.5-32B on L20, from the profiles
# that TD-Pipe ships (MLSysU/TD-Pipe, c8c5316).
_QWEN_32B = {1: 85.5, 4: 89.4, 8: 90.3, 16: 90.6, 64: 103.9, 128: 116.5, 256: 155.9}


def machines() -> dict[str, tuple[Server, Profile]]:
    """A steep one (mixture of experts, PP8) and a flat one (dense, PP4)."""
    moe = the_case((8, 8, 8, 8, 8, 8, 7, 6)).readings[0].profile
    moe = replace(moe, name="MoE, PP8", cpu=CpuTimes(), way_back=0.3e-3)
    decode = Points.of([(b, ms / 1e3) for b, ms in _QWEN_32B.items()])
    # 2 * 32e9 operations per token at half of 119.5 TFLOPS.
    prefill = Affine(decode(1), 2 * 32e9 / 60e12)
    dense = split_layers("dense, PP4", decode, prefill, (16,) * 4, head=1e-3)
    return {
        "moe": (Server(8, 0, 64), moe),
        "dense": (Server(4, 0, 64), dense),
    }


def loads(server: Server, profile: Profile, requests: int, seed: int) -> list[Load]:
    """The twenty; rates are parts of what the law allows with full rows.

    Args:
        server: of the machine.
        profile: of the machine.
        requests: of each load.
        seed: of everything random.
    """
    count, most = requests, server.max_running_requests
    full = throughput(profile, even_sizes(most, server.pp_size))
    found = [
        closed_loop(clients, count, 128, 256, seed=seed)
        for clients in (1, 4, 8, 12, 16, 24, 32, 48, 64, 96)
    ]
    found += [
        _named(
            "closed 32, one length", closed_loop(32, count, 128, 256, shape="fixed")
        ),
        _named(
            "closed 32, long tail",
            closed_loop(32, count, 128, 256, shape="long-tail", seed=seed),
        ),
        _named("closed 32, prompts 2k", closed_loop(32, count, 2000, 256, seed=seed)),
        _named(
            "bursts of 8", burst(8, count, 40 * 8 * 256 / full, 128, 256, seed=seed)
        ),
        _named(
            "bursts of 32", burst(32, count, 1.5 * 32 * 256 / full, 128, 256, seed=seed)
        ),
        _drain(server, count, seed),
    ]
    for part in (0.2, 0.4, 0.6):
        rate = part * full / 256
        load = poisson(rate, count, 128, 256, seed=seed)
        found.append(_named(f"poisson, {100 * part:.0f} % of the law", load))
    chat = poisson(0.3 * full / 256, count, 700, 256, shape="long-tail", seed=seed)
    found.append(_named("poisson, long tail, 30 %", chat))
    return found


def _drain(server: Server, count: int, seed: int) -> Load:
    """Everything at once, equal lengths side by side, as a batch job sorts them."""
    rng = np.random.default_rng(seed)
    return Load(
        "drain, sorted",
        lengths(128, count, rng),
        sorted(lengths(256, count, rng, "long-tail")),
        arrivals=[0.0] * count,
    )


def _named(name: str, load: Load) -> Load:
    return replace(load, name=name)
