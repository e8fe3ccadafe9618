"""What a server knows of its own past: all of it, or less than its clients have seen.

A server that is behind tells a watch nothing, as a replica of the API server does whose cache stands still. It has no
old state for anybody who asks for the newest one ("resourceVersion unset: most recent", Kubernetes API concepts): a
plain list is read from etcd, and a watch that begins with all there is waits for the cache, for at most three seconds
(`waitUntilWatchCacheFreshAndForceAllEvents` in the API server's cacher).

After a restore the versions that clients know are too large. A real server (v1.34) answers a list, or a watch that is
to begin with all there is, with "Too large resource version" then; a mere watch from such a version stays open, and
nothing comes.
"""

from __future__ import annotations

import asyncio
import contextlib
from http import HTTPStatus
from typing import TYPE_CHECKING

from aiohttp import web

from faults import answers

if TYPE_CHECKING:
    from faults.api_server import ApiServer

_SELECTORS = ("labelSelector", "fieldSelector")
_PATIENCE = 3.0
"""Seconds that a server waits until its cache has come to the newest version, as a real one does."""


class History:
    """Nothing is odd: every request passes as it came.

    Attributes:
        lowers: by how much all versions are smaller than the real ones.
    """

    lowers = 0

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse | None:
        """Return the answer that no other server would give; None: the request passes."""
        return None

    def target(self, request: web.BaseRequest) -> str:
        """Return path and query by which the real server knows what is asked for."""
        return request.raw_path


class Behind(History):
    """Its cache stands still until it catches up.

    Args:
        server: the real one.
        forgets: it refuses to go on from any version as expired, as a server does that has just begun.
    """

    def __init__(self, server: ApiServer, *, forgets: bool = False) -> None:
        self._server = server
        self._forgets = forgets
        self._caught_up = asyncio.Event()

    def catch_up(self) -> None:
        """Know everything."""
        self._caught_up.set()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse | None:
        """Have watches wait: for what changes, or for all there is."""
        if self._caught_up.is_set() or not is_of_collection(request) or not is_watch(request):
            return None
        if wants_state(request):
            return await self._waited(request)
        return answers.refusal(HTTPStatus.GONE) if self._forgets else await self._watched(request)

    async def _waited(self, request: web.BaseRequest) -> web.StreamResponse | None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self._caught_up.wait()
                return None
        return await too_large(request, 0, wanted=1)

    async def _watched(self, request: web.BaseRequest) -> web.StreamResponse:
        """Tell what has changed since the version that was asked for when it has caught up."""
        response = await opened(request)
        await self._caught_up.wait()
        async with self._server.forward("GET", request.raw_path, dict(request.headers), b"") as upstream:
            async for chunk in upstream.content.iter_any():
                await response.write(chunk)
        return response


class Restored(History):
    """The versions that its clients know are too large, until they have listed anew.

    Args:
        current: the version that it has come to, by the real server's count.
        lowers: by how much all versions are smaller than the real ones.
        silent: a watch from such a version stays open without a word.
    """

    def __init__(self, current: int, *, lowers: int = 0, silent: bool = False) -> None:
        self.lowers = lowers
        self._current = current
        self._silent = silent
        self._listed: set[str] = set()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse | None:
        """Refuse what begins at a version that it does not know."""
        if not is_of_collection(request) or "continue" in request.query:
            return None
        version = _version(request)
        if not version:
            self._listed.add(_collection(request))
        if not version or _collection(request) in self._listed:
            return None
        if self._silent and not wants_state(request):
            response = await opened(request)
            await asyncio.Event().wait()
            return response
        return await too_large(request, self._current - self.lowers)

    def target(self, request: web.BaseRequest) -> str:
        """Return path and query with the real server's version."""
        version = _version(request)
        if not self.lowers or not version:
            return request.raw_path
        return str(request.rel_url.update_query(resourceVersion=str(version + self.lowers)))


def is_of_collection(request: web.BaseRequest) -> bool:
    """Whether all objects of a kind in a namespace are read."""
    _, _, rest = request.path.partition("/namespaces/")
    return request.method == "GET" and rest.count("/") == 1


def is_watch(request: web.BaseRequest) -> bool:
    """Whether changes are asked for."""
    return request.query.get("watch") in {"1", "true"}


def wants_state(request: web.BaseRequest) -> bool:
    """Whether all there is is asked for: a list, or a watch that begins with one."""
    return not is_watch(request) or request.query.get("sendInitialEvents") == "true"


async def opened(request: web.BaseRequest) -> web.StreamResponse:
    """Begin to answer a watch."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    return response


async def too_large(request: web.BaseRequest, current: int, *, wanted: int = 0) -> web.StreamResponse:
    """Refuse a version that the server has not come to; in a watch by an event, as it is open by then."""
    status = answers.too_large(wanted or _version(request), current)
    if not is_watch(request):
        return web.json_response(status, status=HTTPStatus.GATEWAY_TIMEOUT, headers={"Retry-After": "1"})
    response = await opened(request)
    await response.write(answers.event("ERROR", status))
    return response


def _version(request: web.BaseRequest) -> int:
    return int(request.query.get("resourceVersion") or 0)


def _collection(request: web.BaseRequest) -> str:
    return " ".join((request.path, *(request.query.get(name, "") for name in _SELECTORS)))
