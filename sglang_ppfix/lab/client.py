"""Sends a load to a server over HTTP, as light on the CPU as it can."""

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import aiohttp

from .load import Load, PlannedRequest, RequestResult


def run_load(url: str, load: Load, stream: bool = False) -> list[RequestResult]:
    """Send ``load`` to the server at ``url`` and wait for every answer.

    Args:
        url: base address.
        load: what to send.
        stream: let the server send every token when it has it. Costs CPU time, which
            the schedulers of a small machine need themselves; off, the device traces
            say when a token was made.

    Returns:
        One result a request, in the order of ``load.requests``. An answer that is an
        error is a result with ``error``, not an exception.
    """
    return asyncio.run(send_load(url, load, stream))


async def send_load(url: str, load: Load, stream: bool = False) -> list[RequestResult]:
    """As :func:`run_load`, inside a running event loop."""
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    results = [RequestResult(request) for request in load.requests]
    async with aiohttp.ClientSession(
        url, connector=connector, timeout=timeout
    ) as session:
        if load.arrival == "closed":
            pending = iter(results)
            clients = [
                _client(session, pending, stream)
                for _ in range(min(load.clients, len(results)))
            ]
            await asyncio.gather(*clients)
        else:
            await asyncio.gather(
                *(_arrive(session, result, stream) for result in results)
            )
    return results


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
            async with session.post("/abort_request", json={"rid": request.rid}) as ack:
                await ack.read()
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
    async with session.post("/generate", json=_body(result.request, stream)) as answer:
        if answer.status != 200:
            text = (await answer.text())[:300]
            result.finish, result.error = "error", f"HTTP {answer.status}: {text}"
            return
        if not stream:
            _take(result, json.loads(await answer.read()))
            return
        async for line in answer.content:
            if line.startswith(b"data: {"):
                if result.first_token is None:
                    result.first_token = time.monotonic()
                _take(result, json.loads(line[6:]))


def _body(request: PlannedRequest, stream: bool) -> dict[str, Any]:
    return {
        "rid": request.rid,
        "input_ids": list(request.prompt),
        "sampling_params": {
            "max_new_tokens": request.output_tokens,
            "ignore_eos": True,
            **request.sampling,
        },
        "stream": stream,
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
