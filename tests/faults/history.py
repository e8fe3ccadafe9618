"""Server histories: a complete one, a stale cache, and a restored backup that is older than the clients' versions.

A server with a stale cache sends nothing on a watch, like a replica of the API server that is behind. It never returns
old state to a request for the newest ("resourceVersion unset: most recent", Kubernetes API concepts): it reads a list
from etcd.

After a restore the versions that clients hold are too large. A real server (v1.34) then answers "Too large resource
version" to a list; a watch from such a version stays open and sends nothing.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING

from aiohttp import web

from faults import answers

if TYPE_CHECKING:
    from faults.api_server import ApiServer

_SELECTORS = ("labelSelector", "fieldSelector")


class History:
    """Complete history: every request passes unchanged.

    Attributes:
        lowers: difference between the real versions and the smaller ones that clients get.
    """

    lowers = 0

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse | None:
        """Return a response that replaces the real server's; None: the request passes."""
        return None

    def target(self, request: web.BaseRequest) -> str:
        """Return the path and query to send to the real server."""
        return request.raw_path


class Behind(History):
    """Stale cache until `catch_up`.

    Args:
        server: the real server.
        forgets: refuse to continue from any version, as expired, like a server that has just started.
    """

    def __init__(self, server: ApiServer, *, forgets: bool = False) -> None:
        self._server = server
        self._forgets = forgets
        self._caught_up = asyncio.Event()

    def catch_up(self) -> None:
        """Make the cache current."""
        self._caught_up.set()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse | None:
        """Hold back watches."""
        if self._caught_up.is_set() or not is_of_collection(request) or not is_watch(request):
            return None
        return answers.refusal(HTTPStatus.GONE) if self._forgets else await self._watched(request)

    async def _watched(self, request: web.BaseRequest) -> web.StreamResponse:
        """Send the changes since the requested version once the cache has caught up."""
        response = await opened(request)
        await self._caught_up.wait()
        async with self._server.forward("GET", request.raw_path, dict(request.headers), b"") as upstream:
            async for chunk in upstream.content.iter_any():
                await response.write(chunk)
        return response


class Restored(History):
    """Restored backup: the versions that clients hold are too large until they list again.

    Args:
        current: current version of the real server.
        lowers: difference between the real versions and the smaller ones that clients get.
        silent: a watch from a version that is too large stays open and sends nothing.
    """

    def __init__(self, current: int, *, lowers: int = 0, silent: bool = False) -> None:
        self.lowers = lowers
        self._current = current
        self._silent = silent
        self._listed: set[str] = set()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse | None:
        """Refuse a request that begins at a version that is too large."""
        if not is_of_collection(request) or "continue" in request.query:
            return None
        version = _version(request)
        if not version:
            self._listed.add(_collection(request))
        if not version or _collection(request) in self._listed:
            return None
        if self._silent and is_watch(request):
            response = await opened(request)
            await asyncio.Event().wait()
            return response
        return await too_large(request, self._current - self.lowers)

    def target(self, request: web.BaseRequest) -> str:
        """Return the path and query with the real server's version."""
        version = _version(request)
        if not self.lowers or not version:
            return request.raw_path
        return str(request.rel_url.update_query(resourceVersion=str(version + self.lowers)))


def is_of_collection(request: web.BaseRequest) -> bool:
    """Return True if the request reads all objects of a kind in a namespace."""
    _, _, rest = request.path.partition("/namespaces/")
    return request.method == "GET" and rest.count("/") == 1


def is_watch(request: web.BaseRequest) -> bool:
    """Return True for a watch."""
    return request.query.get("watch") in {"1", "true"}


async def opened(request: web.BaseRequest) -> web.StreamResponse:
    """Start the response to a watch."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    return response


async def too_large(request: web.BaseRequest, current: int) -> web.StreamResponse:
    """Refuse a version that the server has not reached; in a watch, which is open by then, by an event."""
    status = answers.too_large(_version(request), current)
    if not is_watch(request):
        return web.json_response(status, status=HTTPStatus.GATEWAY_TIMEOUT, headers={"Retry-After": "1"})
    response = await opened(request)
    await response.write(answers.event("ERROR", status))
    return response


def _version(request: web.BaseRequest) -> int:
    return int(request.query.get("resourceVersion") or 0)


def _collection(request: web.BaseRequest) -> str:
    return " ".join((request.path, *(request.query.get(name, "") for name in _SELECTORS)))
