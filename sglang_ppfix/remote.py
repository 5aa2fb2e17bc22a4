"""A running server, over HTTP: the plugin's state, and the switch."""

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp

from .hooks.change import from_words
from .keys import bearer

TIMEOUT = aiohttp.ClientTimeout(total=30)


class RemoteError(Exception):
    """The server does not answer, or not as needed; one line."""


class RemoteServer:
    """One server; use it as an async context manager.

    Args:
        url: base address, ``http://host:port``.
        api_key: sent as a bearer token (SGLang's ``--api-key``).
        admin_key: sent in its place with a change of the switch, which SGLang's
            ``--admin-api-key`` guards where one is set.
    """

    def __init__(
        self, url: str, api_key: str | None = None, admin_key: str | None = None
    ) -> None:
        self.url = url.rstrip("/")
        self._headers = bearer(api_key)
        self._admin_headers = bearer(admin_key)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "RemoteServer":
        self._session = aiohttp.ClientSession(
            headers=self._headers,
            connector=aiohttp.TCPConnector(limit=0),
            timeout=TIMEOUT,
        )
        return self

    async def __aexit__(self, *_exception: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        timeout_s: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """JSON answer to a request.

        Raises:
            RemoteError: no connection, a status other than 200, or no JSON.
        """
        if self._session is None:
            raise RuntimeError("RemoteServer is used outside of its context")
        timeout = TIMEOUT if timeout_s is None else aiohttp.ClientTimeout(timeout_s)
        try:
            async with self._session.request(
                method, self.url + path, json=body, timeout=timeout, headers=headers
            ) as reply:
                if reply.status in (401, 403):
                    raise RemoteError(
                        f"{self.url}{path}: refused ({reply.status}); give --api-key, "
                        "and --admin-api-key for changes where the server has one"
                    )
                if reply.status != 200:
                    text = (await reply.text())[:200]
                    raise RemoteError(f"{self.url}{path}: {reply.status} {text}")
                return await reply.json(content_type=None)
        except (aiohttp.ClientError, asyncio.TimeoutError, ValueError) as error:
            kind = type(error).__name__
            raise RemoteError(f"{self.url}{path}: {kind} {error}".strip()) from error

    async def state(self) -> dict[str, Any]:
        """The plugin's state on rank 0, with what came around of the others.

        Raises:
            RemoteError: the server does not run the plugin, or it does not act there.
        """
        info = await self.request("GET", "/server_info")
        states = info.get("internal_states") or [{}]
        state = states[0].get("ppfix")
        if state is None:
            raise RemoteError(
                f"{self.url} does not run the plugin: start it with SGLANG_PPFIX=1 "
                "(or observe), and see `sglang-ppfix doctor`"
            )
        if not state["active"]:
            raise RemoteError(f"{self.url}: no pipeline to fill ({state['reason']})")
        return dict(state)

    async def change(self, words: Mapping[str, str]) -> dict[str, Any]:
        """Change the switch; the state afterwards.

        Args:
            words: ``{"policy": "observe"}`` and the like.

        Raises:
            ChangeError: an unknown key or word.
            RemoteError: the server refused.
        """
        body = {"server_args": from_words(words)}
        answer = await self.request(
            "POST", "/set_internal_state", body, headers=self._admin_headers
        )
        state = await self.state()
        if answer is not True and answer != [True] * len(answer):
            raise RemoteError(f"{self.url} refused: {state['refused']}")
        return state


async def confirmed(
    server: RemoteServer, state: Mapping[str, Any], seconds: float
) -> list[dict[str, Any]]:
    """Reports of all ranks once they show the change that ``state`` shows.

    Reports ride with the batches, so an idle server confirms nothing: what came
    around by then is returned.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    wanted = (state["policy"], state["target_slots"])
    while True:
        ranks: list[dict[str, Any]] = (await server.state())["ranks"]
        seen = {(rank["policy"], rank["target_slots"]) for rank in ranks}
        late = asyncio.get_running_loop().time() > deadline
        if late or (len(ranks) == state["stages"] and seen == {wanted}):
            return ranks
        await asyncio.sleep(0.2)
