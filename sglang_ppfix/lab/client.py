"""Sends a load to a server over HTTP, as light on the CPU as it can."""

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import aiohttp

from .load import Load, PlannedRequest, RequestResult

LOAD_TIMEOUT_S = 900.0


def run_load(
    url: str, load: Load, stream: bool = False, timeout_s: float = LOAD_TIMEOUT_S
) -> list[RequestResult]:
    """Send ``load`` to the server at ``url`` and wait for every answer.

    Args:
        url: base address.
        load: what to send.
        stream: let the server send every token when it has it (not in bursts). Costs
            CPU time, which the schedulers of a small machine need themselves; off, the
            device traces say when a token was made.
        timeout_s: after that, what has no answer is given up, as an error.

    Returns:
        One result a request, in the order of ``load.requests``. An answer that is an
        error is a result with ``error``, not an exception.
    """
    return asyncio.run(send_load(url, load, stream, timeout_s))


async def send_load(
    url: str, load: Load, stream: bool = False, timeout_s: float = LOAD_TIMEOUT_S
) -> list[RequestResult]:
    """As :func:`run_load`, inside a running event loop."""
    results = [RequestResult(request) for request in load.requests]
    async with aiohttp.ClientSession(
        url,
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
    ) as session:
        try:
            await asyncio.wait_for(_send_all(session, load, results, stream), timeout_s)
        except asyncio.TimeoutError:
            for result in results:
                if not result.finish:
                    result.finish = "error"
                    result.error = f"no answer after {timeout_s:.0f} s"
                    result.finished = time.monotonic()
    return results


async def _send_all(
    session: aiohttp.ClientSession,
    load: Load,
    results: list[RequestResult],
    stream: bool,
) -> None:
    if load.arrival == "burst":
        for first in range(0, len(results), load.clients):
            await _send_burst(session, results[first : first + load.clients])
    elif load.arrival == "closed":
        pending = iter(results)
        clients = (_client(session, pending, stream) for _ in range(load.clients))
        await asyncio.gather(*clients)
    else:
        await asyncio.gather(*(_arrive(session, result, stream) for result in results))


async def _send_burst(
    session: aiohttp.ClientSession, results: list[RequestResult]
) -> None:
    """One call for all; SGLang hands its requests to the scheduler in one message."""
    bodies = [_body(result.request) for result in results]
    call = {key: [body[key] for body in bodies] for key in bodies[0]}
    sent = time.monotonic()
    for result in results:
        result.sent = sent
    aborts = [
        asyncio.ensure_future(_abort(session, result.request))
        for result in results
        if result.request.abort_after_s is not None
    ]
    try:
        async with session.post("/generate", json=call) as reply:
            answers = await _answers(reply, len(results))
    except aiohttp.ClientError as error:
        answers = [{"error": f"{type(error).__name__}: {error}"}] * len(results)
    finally:
        for abort in aborts:
            abort.cancel()
        await asyncio.gather(*aborts, return_exceptions=True)
    finished = time.monotonic()
    latencies = []
    for result, answer in zip(results, answers, strict=True):
        _take(result, answer)
        latencies.append(float(result.meta.get("e2e_latency") or 0.0))
    # The call ends with its slowest request; the server knows by how much the others
    # were earlier.
    for result, latency in zip(results, latencies, strict=True):
        result.finished = finished - (max(latencies) - latency if latency else 0.0)


async def _answers(reply: aiohttp.ClientResponse, count: int) -> list[dict[str, Any]]:
    if reply.status != 200:
        text = (await reply.text())[:300]
        return [{"error": f"HTTP {reply.status}: {text}"}] * count
    answers = json.loads(await reply.read())
    return answers if isinstance(answers, list) else [answers]


async def _abort(session: aiohttp.ClientSession, request: PlannedRequest) -> None:
    await asyncio.sleep(request.abort_after_s or 0.0)
    async with session.post("/abort_request", json={"rid": request.rid}) as reply:
        await reply.read()


async def _client(
    session: aiohttp.ClientSession, pending: Iterator[RequestResult], stream: bool
) -> None:
    """One client of a closed loop: the next request when the last one is answered."""
    for result in pending:
        await _send(session, result, stream)


async def _arrive(
    session: aiohttp.ClientSession, result: RequestResult, stream: bool
) -> None:
    await asyncio.sleep(result.request.arrive_s)
    await _send(session, result, stream)


async def _send(
    session: aiohttp.ClientSession, result: RequestResult, stream: bool
) -> None:
    request = result.request
    result.sent = time.monotonic()
    answer = asyncio.ensure_future(_generate(session, result, stream))
    try:
        done, _ = await asyncio.wait([answer], timeout=request.abort_after_s)
        if not done and request.abort == "abort_request":
            await _abort(session, replace(request, abort_after_s=None))
            done, _ = await asyncio.wait([answer])
        if done:
            answer.result()
        else:
            result.finish = "disconnect"
    except (aiohttp.ClientError, ValueError) as error:
        result.finish, result.error = "error", f"{type(error).__name__}: {error}"
    finally:
        if not answer.done():
            answer.cancel()
            await asyncio.wait([answer])
        result.finished = time.monotonic()


async def _generate(
    session: aiohttp.ClientSession, result: RequestResult, stream: bool
) -> None:
    body = {**_body(result.request), "stream": stream}
    async with session.post("/generate", json=body) as reply:
        if not stream or reply.status != 200:
            (answer,) = await _answers(reply, 1)
            _take(result, answer)
            return
        async for line in reply.content:
            if line.startswith(b"data: {"):
                if result.first_token is None:
                    result.first_token = time.monotonic()
                _take(result, json.loads(line[6:]))


def _body(request: PlannedRequest) -> dict[str, Any]:
    return {
        "rid": request.rid,
        "input_ids": list(request.prompt),
        "sampling_params": {
            "max_new_tokens": request.output_tokens,
            "ignore_eos": True,
            **request.sampling,
        },
        **request.extra,
    }


def _take(result: RequestResult, answer: dict[str, Any]) -> None:
    """Keep an answer, or the latest part of a streamed one."""
    if "error" in answer:
        result.finish, result.error = "error", str(answer["error"])[:300]
        return
    result.output = answer["output_ids"]
    result.meta = answer["meta_info"]
    reason = result.meta.get("finish_reason") or {}
    result.finish = reason.get("type", "")
    wilful = result.request.abort_after_s is not None
    if result.finish == "abort" and not wilful:
        result.error = str(reason.get("message", "aborted"))[:300]
