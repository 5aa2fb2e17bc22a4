"""A running server: is every rank hooked, with one version and one policy?

The server shows what came around the ring from TP rank 0 of each stage. Of the other
TP ranks only what was agreed at start-up is known (``hooks.agreement``).
"""

import asyncio
import json
import shlex
from collections.abc import Iterator
from typing import Any

from sglang_ppfix import __version__
from sglang_ppfix.remote import RemoteError, RemoteServer

from .report import Check, State

TIMEOUT_S = 10.0
_NAME = "server"


def server(url: str, api_key: str | None = None) -> Iterator[Check]:
    """Ask ``url`` for ``/server_info`` and judge what its ranks say.

    Args:
        url: base address, as ``http://127.0.0.1:30000``.
        api_key: sent as a bearer token.
    """
    try:
        info = asyncio.run(_server_info(url, api_key))
    except RemoteError as error:
        fix = f"curl {url.rstrip('/')}/server_info"
        yield Check(_NAME, State.FAIL, f"no answer: {error}", fix)
        return
    states = info.get("internal_states")
    if not isinstance(states, list) or not states:
        yield Check(_NAME, State.FAIL, f"{url} shows no internal_states", _restart())
        return
    for number, state in enumerate(states):
        where = url if len(states) == 1 else f"{url}, data-parallel rank {number}"
        yield from judge(state, info, where, _work(url, with_key=bool(api_key)))


def judge(state: Any, info: dict[str, Any], where: str, work: str) -> Iterator[Check]:
    """Judge one entry of ``internal_states``.

    Args:
        state: the entry; the plugin's part is under ``ppfix``.
        info: all of ``/server_info``.
        where: what to call this server.
        work: command that gives it something to do.
    """
    ours = state.get("ppfix") if isinstance(state, dict) else None
    if not isinstance(ours, dict):
        text = f"{where}: PP rank 0 is not hooked (no ppfix in internal_states)"
        yield Check(_NAME, State.FAIL, text, _restart())
        return
    if not ours.get("active", True):
        reason = ours.get("reason", "unknown")
        text = f"{where}: stock behaviour, because of {reason}"
        yield Check(_NAME, State.WARN, text, _restart(f"without {reason}"))
        return
    stages = ours.get("stages") or info.get("pp_size") or 1
    ranks = [rank for rank in ours.get("ranks") or [] if isinstance(rank, dict)]
    missing = sorted(set(range(int(stages))) - {rank.get("pp_rank") for rank in ranks})
    said = f"policy {ours.get('policy')}, plugin {ours.get('version')}"
    if not ranks:
        yield Check(
            _NAME,
            State.WARN,
            f"{where}: PP rank 0 is hooked ({said}); the other ranks have not "
            "reported yet, as they do while requests run",
            work,
        )
        return
    if missing:
        names = ", ".join(f"PP rank {rank}" for rank in missing)
        text = f"{where}: {names} not hooked, or silent"
        yield Check(_NAME, State.FAIL, text, _restart())
        return
    for key in ("version", "policy", "target_slots"):
        values = {str(rank.get(key)) for rank in ranks}
        if len(values) > 1:
            found = ", ".join(
                f"PP rank {rank.get('pp_rank')}: {rank.get(key)}" for rank in ranks
            )
            text = f"{where}: the ranks differ in {key} ({found})"
            yield Check(_NAME, State.FAIL, text, _restart())
            return
    if ours.get("version") not in (None, __version__):
        text = f"{where}: runs plugin {ours['version']}, here it is {__version__}"
        yield Check(_NAME, State.WARN, text, _restart())
        return
    text = f"{where}: all {stages} PP ranks are hooked, {said}"
    yield Check(_NAME, State.OK, f"{text}{_followers(info)}")


def _followers(info: dict[str, Any]) -> str:
    """What is known of the ranks that are not shown; empty where there are none."""
    size = info.get("tp_size")
    if not isinstance(size, int) or size < 2:
        return ""
    others = "TP rank 1" if size == 2 else f"TP ranks 1 to {size - 1}"
    return (
        f" (seen at TP rank 0 of each; {others} had the same plugin and settings at "
        "start-up, and cannot be seen since)"
    )


def _restart(how: str = "on every node") -> str:
    return f"SGLANG_PPFIX=1 python -m sglang.launch_server ...    # {how}"


def _work(url: str, with_key: bool) -> str:
    """A request long enough for reports to come around, and the doctor once more."""
    # Token ids: a server without a tokenizer takes them, too.
    parameters = {"max_new_tokens": 64, "ignore_eos": True}
    body = json.dumps({"input_ids": [1, 2, 3], "sampling_params": parameters})
    target = f"{url.rstrip('/')}/generate"
    send = ["curl", "-s", target, "-H", "Content-Type: application/json", "-d", body]
    # Never the key itself: reports are pasted into issues.
    key = ' -H "Authorization: Bearer $SGLANG_API_KEY"' if with_key else ""
    again = shlex.join(["sglang-ppfix", "doctor", "--url", url])
    return f"{shlex.join(send)}{key} && {again}"


async def _server_info(url: str, api_key: str | None) -> dict[str, Any]:
    async with RemoteServer(url, api_key) as server:
        content = await server.request("GET", "/server_info", timeout_s=TIMEOUT_S)
    if not isinstance(content, dict):
        raise RemoteError(f"{url}/server_info: no JSON object")
    return content
