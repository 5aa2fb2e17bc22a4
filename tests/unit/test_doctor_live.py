"""``doctor --url`` against a real HTTP server that answers as SGLang does."""

import asyncio
import json
import shlex
import threading
from contextlib import contextmanager

import pytest
from aiohttp import web

from sglang_ppfix import __version__
from sglang_ppfix.doctor import State, live

SAID = f"policy balanced, plugin {__version__}"


def rank(number, **changed):
    """What a PP rank reports (``Ring.report``)."""
    return {
        "pp_rank": number,
        "version": __version__,
        "policy": "balanced",
        "target_slots": 2,
        **changed,
    }


def state(ranks, **changed):
    """``internal_states`` of a server with two stages."""
    ours = {"active": True, "stages": 2, **rank(0), "ranks": ranks, **changed}
    return [{"last_gen_throughput": 1.0, "ppfix": ours}]


@contextmanager
def serving(answer, status=200, key=None):
    """A server whose ``/server_info`` gives ``answer``; yields its address."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start():
        async def server_info(request):
            if key and request.headers.get("Authorization") != f"Bearer {key}":
                return web.Response(status=401)
            return web.json_response(answer, status=status)

        application = web.Application()
        application.router.add_get("/server_info", server_info)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner

    runner = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def ask(internal_states, tp_size=1):
    """The one check of a server with these states."""
    info = {"pp_size": 2, "tp_size": tp_size, "internal_states": internal_states}
    with serving(info) as url:
        (check,) = live.server(url)
    return check


def test_every_rank_is_hooked():
    """Catches an alarm about a sound server."""
    check = ask(state([rank(0), rank(1)]))
    assert (check.state, check.fix) == (State.OK, None)
    assert check.text.endswith(f"all 2 PP ranks are hooked, {SAID}")


@pytest.mark.parametrize(
    ("tp_size", "others"), [(2, "TP rank 1 had"), (4, "TP ranks 1 to 3 had")]
)
def test_tensor_parallel_ranks_are_not_claimed(tp_size, others):
    """Catches a claim about ranks that nobody heard of."""
    check = ask(state([rank(0), rank(1)]), tp_size)
    assert check.state is State.OK
    assert "seen at TP rank 0 of each" in check.text
    assert others in check.text
    assert "at start-up" in check.text


@pytest.mark.parametrize(
    ("states", "text"),
    [
        ([{"last_gen_throughput": 1.0}], "PP rank 0 is not hooked"),
        (state([rank(0)]), "PP rank 1 not hooked"),
        (state([rank(0), rank(1, policy="stock")]), "differ in policy"),
        (state([rank(0), rank(1, version="0.0.1")]), "differ in version"),
        (state([rank(0), rank(1, target_slots=1)]), "differ in target_slots"),
        ([], "no internal_states"),
    ],
)
def test_a_rank_that_is_not(states, text):
    """Catches ``ok`` although one rank is stock, silent or set otherwise."""
    check = ask(states)
    assert check.state is State.FAIL
    assert text in check.text
    assert check.fix is not None


@pytest.mark.parametrize(
    ("states", "text"),
    [
        (state([]), "have not reported yet"),
        ([{"ppfix": {"active": False, "reason": "--pp-size 1"}}], "--pp-size 1"),
        (state([rank(0, version="9"), rank(1, version="9")], version="9"), "plugin 9"),
    ],
)
def test_worth_a_look(states, text):
    """Catches a claim about ranks that nobody heard of, or a wrong ``fail``."""
    check = ask(states)
    assert check.state is State.WARN
    assert text in check.text
    assert check.fix is not None


def test_what_to_do_is_a_command():
    """Catches a sentence in place of a command, and a key that is shown."""
    with serving({"internal_states": state([])}, key="secret") as url:
        (check,) = live.server(url, "secret")
    send, _, again = check.fix.partition(" && ")
    words = shlex.split(send)
    assert words[:3] == ["curl", "-s", f"{url}generate"]
    assert "ignore_eos" in json.loads(words[words.index("-d") + 1])["sampling_params"]
    assert "Authorization: Bearer $SGLANG_API_KEY" in words
    assert "secret" not in check.fix
    assert again == f"sglang-ppfix doctor --url {url}"


def test_stock_behaviour_says_what_to_leave_out():
    """Catches a warning that nothing mends."""
    check = ask([{"ppfix": {"active": False, "reason": "--enable-hisparse"}}])
    assert "launch_server" in check.fix
    assert check.fix.endswith("without --enable-hisparse")


def test_data_parallel_ranks_are_told_apart():
    """Catches a look at the first entry only."""
    info = {"internal_states": [*state([rank(0), rank(1)]), {}]}
    with serving(info) as url:
        good, bad = live.server(url)
    assert (good.state, bad.state) == (State.OK, State.FAIL)
    assert "data-parallel rank 1" in bad.text


@pytest.mark.parametrize(
    ("answer", "status"), [([1], 200), ({}, 401), ({"detail": "x"}, 404)]
)
def test_an_answer_that_is_none(answer, status):
    """Catches a traceback on another server, or one that wants a key."""
    with serving(answer, status) as url:
        (check,) = live.server(url)
    assert check.state is State.FAIL
    assert "no answer: " in check.text
    assert "/server_info" in check.text


def test_a_server_with_a_key():
    """Catches a key that is not sent, and an alarm without a hint at it."""
    with serving({"internal_states": state([rank(0), rank(1)])}, key="k") as url:
        (refused,) = live.server(url)
        (let_in,) = live.server(url, "k")
    assert (refused.state, let_in.state) == (State.FAIL, State.OK)
    assert "--api-key" in refused.text


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "nonsense", "http://"])
def test_no_server(url):
    """Catches a traceback where nothing listens, and for an address that is none."""
    (check,) = live.server(url)
    assert check.state is State.FAIL
    assert url in check.text
