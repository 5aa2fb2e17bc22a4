"""A running server over HTTP: configuration, load, and what the plugin says.

Stock SGLang counts one slot in ``/v1/loads`` (issue 32158). The number in flight then
comes out of two rates that count all slots: tokens per second, and the time from token
to token of a request. Their product is the number of requests that decode.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from sglang_ppfix.keys import bearer

from .gpu import GpuUse, NoGpuError, is_here, sample_gpus

_TIMEOUT_S = 10.0
_LOADS_S = 0.1
_STATE_S = 1.0

#: name -> {labels: value}; labels as a frozen set of pairs.
Metrics = dict[str, dict[frozenset[tuple[str, str]], float]]


@dataclass
class Samples:
    """What a server answered while it was watched.

    Attributes:
        info: ``/server_info`` at the start.
        seconds: how long it was watched.
        loads: entries of ``/v1/loads``, data-parallel rank 0.
        states: the plugin's part of ``/server_info``, empty without the plugin.
        before, after: ``/metrics`` at both ends; empty when it is off.
        gpus: samples of this machine's GPUs; ``no_gpu``: why there are none.
    """

    info: dict[str, Any]
    seconds: float = 0.0
    loads: list[dict[str, Any]] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)
    before: Metrics = field(default_factory=dict)
    after: Metrics = field(default_factory=dict)
    gpus: list[GpuUse] = field(default_factory=list)
    no_gpu: str = ""


async def watch(url: str, seconds: float, api_key: str | None = None) -> Samples:
    """Ask a server again and again for ``seconds``, with its ``--api-key``."""
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    headers = bearer(api_key)
    async with aiohttp.ClientSession(timeout=timeout, headers=headers) as session:
        samples = Samples(await _server_info(session, url))
        samples.before = await _metrics(session, url)
        gpus = asyncio.create_task(_gpus(url, seconds))
        begin = time.monotonic()
        next_state = 0.0
        while (elapsed := time.monotonic() - begin) < seconds:
            load = await _load(session, url)
            if load is not None:
                samples.loads.append(load)
            if elapsed >= next_state:
                state = plugin_state(await _server_info(session, url))
                if state:
                    samples.states.append(state)
                next_state = elapsed + _STATE_S
            await asyncio.sleep(_LOADS_S)
        samples.seconds = time.monotonic() - begin
        samples.after = await _metrics(session, url)
        samples.gpus, samples.no_gpu = await gpus
    return samples


async def _server_info(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    for path in ("/server_info", "/get_server_info"):
        async with session.get(url + path) as answer:
            if answer.status == 404:
                continue
            answer.raise_for_status()
            info = await answer.json()
            if isinstance(info, dict):
                return info
    raise ValueError("it has no /server_info: is it SGLang?")


async def _load(session: aiohttp.ClientSession, url: str) -> dict[str, Any] | None:
    async with session.get(url + "/v1/loads") as answer:
        if answer.status != 200:
            return None
        body = await answer.json()
    loads = body.get("loads") if isinstance(body, dict) else None
    return loads[0] if isinstance(loads, list) and loads else None


async def _metrics(session: aiohttp.ClientSession, url: str) -> Metrics:
    async with session.get(url + "/metrics") as answer:
        if answer.status != 200:
            return {}
        return parse_metrics(await answer.text())


async def _gpus(url: str, seconds: float) -> tuple[list[GpuUse], str]:
    if not is_here(url):
        return [], "no GPU samples: the server is on another machine"
    try:
        return await asyncio.to_thread(sample_gpus, seconds), ""
    except NoGpuError as error:
        return [], str(error)


def parse_metrics(text: str) -> Metrics:
    """Values of a text exposition by name and labels."""
    found: Metrics = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = frozenset(sample.labels.items())
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def first_state(info: Mapping[str, Any]) -> dict[str, Any]:
    """Internal state of data-parallel rank 0 out of ``/server_info``."""
    states = info.get("internal_states")
    first = states[0] if isinstance(states, list) and states else None
    return first if isinstance(first, dict) else {}


def plugin_state(info: Mapping[str, Any]) -> dict[str, Any]:
    """The plugin's part of ``/server_info``; empty where it is not loaded."""
    state = first_state(info).get("ppfix")
    return state if isinstance(state, dict) and state.get("active") else {}


def decode_rate(samples: Samples) -> float | None:
    """Decode tokens per second of all slots."""
    counted = grown(samples, "sglang:realtime_tokens_total", "0", mode="decode")
    if counted > 0 and samples.seconds > 0:
        return counted / samples.seconds
    rates = [float(load.get("gen_throughput") or 0.0) for load in samples.loads]
    busy = [rate for rate in rates if rate > 0]
    return fmean(busy) if busy else None


def token_time_s(samples: Samples) -> float | None:
    """Mean time from token to token of a request, in seconds."""
    name = "sglang:inter_token_latency_seconds"
    count = grown(samples, f"{name}_count")
    total = grown(samples, f"{name}_sum")
    return total / count if count >= 20 else None


def grown(
    samples: Samples, name: str, pp_rank: str | None = None, **labels: str
) -> float:
    """Growth of a counter while watched, summed over its other labels."""

    def total(metrics: Metrics) -> float:
        wanted = set(labels.items())
        return sum(
            value
            for found, value in metrics.get(name, {}).items()
            if wanted <= found
            and (pp_rank is None or dict(found).get("pp_rank", pp_rank) == pp_rank)
        )

    return max(total(samples.after) - total(samples.before), 0.0)
