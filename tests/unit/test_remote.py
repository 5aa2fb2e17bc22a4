"""Keys of a server: SGLang takes the admin key for changes only, the other one else."""

import argparse
import asyncio
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from sglang_ppfix.cli import UserError, ab
from sglang_ppfix.cli import set as set_
from sglang_ppfix.observe.live import watch
from sglang_ppfix.remote import RemoteServer

STATE = {"active": True, "policy": "observe", "refused": None}


def guarded() -> web.Application:
    """As SGLang 0.5.23 with both keys set (``utils/auth.py``)."""

    def allowed(request: web.Request, key: str) -> None:
        if request.headers.get("Authorization") != f"Bearer {key}":
            raise web.HTTPUnauthorized

    async def info(request: web.Request) -> web.Response:
        allowed(request, "user")
        return web.json_response({"internal_states": [{"ppfix": STATE}]})

    async def change(request: web.Request) -> web.Response:
        allowed(request, "admin")
        return web.json_response([True])

    app = web.Application()
    app.router.add_get("/server_info", info)
    app.router.add_post("/set_internal_state", change)
    return app


def test_each_key_goes_where_sglang_takes_it() -> None:
    """Catches one key for all: the change is applied, and then called refused."""

    async def run() -> dict[str, Any]:
        async with TestServer(guarded()) as http:
            server = RemoteServer(str(http.make_url("")), "user", "admin")
            async with server:
                return await server.change({"policy": "observe"})

    assert asyncio.run(run())["policy"] == "observe"


def test_diagnose_sends_the_key() -> None:
    """Catches a watch that a guarded server answers with 401."""

    async def run() -> dict[str, Any]:
        async with TestServer(guarded()) as http:
            return (await watch(str(http.make_url("")).rstrip("/"), 1.0, "user")).info

    assert asyncio.run(run())["internal_states"][0]["ppfix"] == STATE


def test_the_verbs_have_both_keys() -> None:
    """Catches a verb that changes a server and cannot name its key."""
    for verb in (set_, ab):
        parser = argparse.ArgumentParser()
        verb.add_arguments(parser)
        words = ["policy=stock"] if verb is set_ else []
        keys = ["--api-key", "a", "--admin-api-key", "b"]
        args = parser.parse_args(["--url", "http://x", *keys, *words])
        assert (args.api_key, args.admin_api_key) == ("a", "b")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["--seconds", "0"], "--seconds 0"),
        (["--json", "/no/such/folder/x.json"], "/no/such/folder"),
    ],
)
def test_ab_refuses_before_it_measures(given: list[str], named: str) -> None:
    """Catches a result that is lost after all pairs were measured."""
    parser = argparse.ArgumentParser()
    ab.add_arguments(parser)
    with pytest.raises(UserError, match=named):
        ab.run(parser.parse_args(["--url", "http://127.0.0.1:9", *given]))
