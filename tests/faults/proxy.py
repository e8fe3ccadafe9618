"""Proxy in front of the real API server that drops, cuts, delays and refuses requests, and records them.

A client needs only the proxy's kubeconfig. A request without a fault passes unchanged.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import time
from collections import Counter
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

from faults import answers
from faults.fault import Fault, Harm, Outage, Traffic
from faults.history import Behind, History, Restored, is_watch
from ptjob_provider.core.kubernetes import ClusterConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from faults.api_server import ApiServer
    from faults.fault import Blindness, Lag, Refusals, Restore

_RESET_AT_ONCE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request that the proxy received.

    Attributes:
        at: seconds of the monotonic clock.
        method: HTTP method.
        resource: plural of the resource, with the sub-resource: `pods/log`.
        traffic: kind of traffic.
        target: path and query.
        fault: fault applied to the request.
        code: status code of the response; 0: there was none, or it has not ended.
    """

    at: float
    method: str
    resource: str
    traffic: Traffic
    target: str
    fault: Fault | None = None
    code: int = 0


class FaultProxy:
    """Proxy that listens on loopback while `running` is open.

    Args:
        server: server that receives the requests.
        faults: faults to apply, each to one request.

    Attributes:
        asked: requests received, in order.
        is_down: an outage is in progress; no request gets a response.
    """

    def __init__(self, server: ApiServer, faults: Sequence[Fault] = ()) -> None:
        self.asked: list[Asked] = []
        self.is_down = False
        self._server = server
        self._faults = {(each.traffic, each.number): each for each in faults}
        self._counts: Counter[Traffic] = Counter()
        self._runner = web.ServerRunner(web.Server(self._handle), handler_cancellation=True, shutdown_timeout=0.1)
        self._site: web.SockSite | None = None
        self._reserved = _bound()
        self._one_outage = asyncio.Lock()
        self._refusals: list[Refusals] = []
        self._blindness: Blindness | None = None
        self._history = History()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[FaultProxy]:
        """Listen on the proxy's own port."""
        await self._runner.setup()
        await self._listen()
        try:
            yield self
        finally:
            await self._runner.cleanup()
            self._reserved.close()

    def config(self, **settings: Any) -> ClusterConfig:
        """Return the configuration of a client that connects through the proxy."""
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self._reserved.getsockname()[1]}"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": self._server.token}}],
            "current-context": "x",
        }
        return ClusterConfig(kube_config=json.dumps(document), **settings)

    @property
    def to_come(self) -> set[Fault]:
        """Return the faults that have not happened yet."""
        return {*self._faults.values()} - {each.fault for each in self.asked if each.fault}

    async def go_down(self, outage: Outage) -> None:
        """Wait until the outage begins; return when it is over."""
        await asyncio.sleep(outage.begins_after)
        async with self._one_outage:
            self.is_down = True
            if outage.refuses and self._site is not None:
                await self._site.stop()
            self.reset_all()
            await asyncio.sleep(outage.seconds)
            if outage.refuses:
                await self._listen()
            self.is_down = False

    async def refuse(self, refusals: Refusals) -> None:
        """Refuse all requests except creates, from now until the refusals end."""
        self._refusals.append(refusals)
        if refusals.resets:
            self.reset_all()
        await asyncio.sleep(refusals.seconds)
        self._refusals.remove(refusals)

    async def blind(self, blindness: Blindness) -> None:
        """Open no watch of these resources, from now until the blindness ends."""
        self._blindness = blindness
        self.reset_all()
        await asyncio.sleep(blindness.seconds)
        self._blindness = None
        self.reset_all()

    async def fall_behind(self, lag: Lag) -> None:
        """Act as a server with a stale cache, from now on; return when the cache has caught up."""
        self._history = behind = Behind(self._server, forgets=lag.forgets)
        self.reset_all()
        await asyncio.sleep(lag.seconds)
        self._history = History()
        behind.catch_up()

    async def be_restored(self, restore: Restore, version: int) -> None:
        """Treat the versions that clients hold as too large, from now on; `version` is the real server's latest."""
        self._history = Restored(version, lowers=version // 2 if restore.drops else 0, silent=restore.silent)
        self.reset_all()
        if restore.seconds is not None:
            await asyncio.sleep(restore.seconds)
            self._history = History()

    def reset_all(self) -> None:
        """Reset every open connection."""
        server = self._runner.server
        for connection in [*server.connections] if server else ():
            _reset(connection.transport)

    async def _listen(self) -> None:
        """Listen on the reserved port; a second socket keeps it reserved while the proxy does not listen."""
        self._site = web.SockSite(self._runner, _bound(self._reserved.getsockname()[1]))
        await self._site.start()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        traffic = _traffic(request)
        is_refused = bool(self._refusals) and request.method != "POST"
        is_passed = not self.is_down and not is_refused
        fault = self._faults.get((traffic, self._counts[traffic])) if is_passed else None
        self._counts[traffic] += is_passed
        number = self._note(request, traffic, fault)
        if self.is_down:
            return _lost(request)
        if is_refused:
            return self._said(number, _refused(request, self._refusals[-1]))
        if (
            self._blindness is not None
            and traffic is Traffic.WATCH
            and _resource(request.path) in (self._blindness.resources)
        ):
            return self._said(number, await _unwatched(request, self._blindness))
        passing = _Passing(self._server, request, fault, await request.read(), self._history)
        try:
            return self._said(number, await (passing.answer() if traffic is Traffic.REQUEST else passing.stream()))
        except (ConnectionError, aiohttp.ClientError):  # the client or the server is gone: close the other connection
            return _lost(request)

    def _note(self, request: web.BaseRequest, traffic: Traffic, fault: Fault | None) -> int:
        method, target = request.method, request.raw_path
        resource = _resource(request.path)
        now = time.monotonic()
        self.asked.append(Asked(at=now, method=method, resource=resource, traffic=traffic, target=target, fault=fault))
        return len(self.asked) - 1

    def _said(self, number: int, response: web.StreamResponse) -> web.StreamResponse:
        self.asked[number] = replace(self.asked[number], code=response.status)
        return response


class _Passing:
    """One request that the proxy forwards."""

    def __init__(
        self, server: ApiServer, request: web.BaseRequest, fault: Fault | None, body: bytes, history: History
    ) -> None:
        self._server = server
        self._request = request
        self._fault = fault
        self._body = body
        self._history = history
        self._rest = b""

    async def answer(self) -> web.StreamResponse:
        """Forward a request with a single response."""
        if self._fault is None:
            return await self._history.answer(self._request) or await self._passed()
        harms: dict[Harm, Callable[[Fault], Awaitable[web.StreamResponse]]] = {
            Harm.RESET: self._lose,
            Harm.STALL: self._hang,
            Harm.TRUNCATE: self._cut,
            Harm.DELAY: self._late,
            Harm.REFUSE: self._refuse,
        }
        return await harms[self._fault.harm](self._fault)

    async def stream(self) -> web.StreamResponse:
        """Forward a request with a streamed response."""
        fault = self._fault
        if fault is None and (odd := await self._history.answer(self._request)) is not None:
            return odd
        if fault is not None and not fault.after and fault.harm is not Harm.DELAY:
            return await self.answer()
        if fault is not None and not fault.after:
            await asyncio.sleep(fault.seconds)
        async with self._sent() as upstream:
            response = web.StreamResponse(status=upstream.status, headers=_headers(upstream))
            response.enable_chunked_encoding()
            await response.prepare(self._request)
            if fault is None or not fault.after:
                await self._pipe(upstream, response)
            elif not await self._pipe(upstream, response, seconds=fault.after):
                return await self._break(fault, upstream, response)
            return response

    # --- faults of a response

    async def _lose(self, fault: Fault) -> web.StreamResponse:
        if fault.arrives:
            await self._passed()
        return _lost(self._request)

    async def _hang(self, fault: Fault) -> web.StreamResponse:
        if fault.arrives:
            await self._passed()
        await _for_ever()
        return _lost(self._request)

    async def _late(self, fault: Fault) -> web.StreamResponse:
        await asyncio.sleep(fault.seconds)
        return await self._passed()

    async def _cut(self, fault: Fault) -> web.StreamResponse:
        async with self._sent() as upstream:
            whole = self._counted(await upstream.read())
            response = web.StreamResponse(status=upstream.status, headers=_headers(upstream))
        if fault.clean:
            response.enable_chunked_encoding()
        else:
            response.content_length = len(whole)
        await response.prepare(self._request)
        await response.write(whole[: len(whole) // 2])
        return response if fault.clean else _lost(self._request, response)

    async def _refuse(self, fault: Fault) -> web.StreamResponse:
        if fault.code == HTTPStatus.CONFLICT and self._request.method != "PATCH":
            return await self._repeated()
        if fault.arrives:
            await self._passed()
        what = _resource(self._request.path)
        return answers.refusal(fault.code, what, page=fault.page, retry_after=fault.retry_after)

    async def _repeated(self) -> web.StreamResponse:
        """Send the request twice and return the second response, the server's own 409, as a retrying gateway does."""
        await self._passed()
        return await self._passed()

    # --- faults of an open stream

    async def _break(
        self, fault: Fault, upstream: aiohttp.ClientResponse, response: web.StreamResponse
    ) -> web.StreamResponse:
        await asyncio.sleep(fault.seconds)
        if fault.harm is Harm.STALL:
            await _for_ever()
        elif fault.harm is Harm.DELAY:
            await self._pipe(upstream, response)
        elif fault.harm is Harm.REFUSE:
            await response.write(answers.event("ERROR", answers.status(fault.code, _resource(self._request.path))))
        elif fault.harm is Harm.TRUNCATE:
            chunk = await self._next(upstream)
            await response.write(chunk[: len(chunk) // 2])
        is_clean = fault.harm in {Harm.DELAY, Harm.REFUSE} or (fault.harm is Harm.TRUNCATE and fault.clean)
        return response if is_clean else _lost(self._request, response)

    # --- data from the server

    async def _passed(self) -> web.Response:
        async with self._sent() as upstream:
            body = self._counted(await upstream.read())
            return web.Response(status=upstream.status, headers=_headers(upstream), body=body)

    async def _pipe(
        self, upstream: aiohttp.ClientResponse, response: web.StreamResponse, *, seconds: float | None = None
    ) -> bool:
        """Forward data for at most `seconds`; return True if the stream ended before."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while chunk := await self._next(upstream):
                    await response.write(chunk)
                return True
        return False

    async def _next(self, upstream: aiohttp.ClientResponse) -> bytes:
        """Return the next data; of a watch with rewritten versions, whole lines."""
        if not self._history.lowers or not is_watch(self._request):
            return await upstream.content.readany()
        while chunk := await upstream.content.readany():
            lines, newline, self._rest = (self._rest + chunk).rpartition(b"\n")
            if newline:
                return self._counted(lines + newline)
        return b""

    def _counted(self, body: bytes) -> bytes:
        """Return the body with the versions of this history."""
        return answers.with_lower_versions(body, self._history.lowers) if self._history.lowers else body

    def _sent(self) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        request = self._request
        return self._server.forward(request.method, self._history.target(request), request.headers, self._body)


def most_within(asked: Sequence[Asked], seconds: float) -> int:
    """Return the highest number of requests within any period of this length."""
    instants = [each.at for each in asked]
    return max((sum(1 for at in instants if begin <= at < begin + seconds) for begin in instants), default=0)


def by_kind(asked: Sequence[Asked]) -> dict[str, int]:
    """Return the number of requests of each kind, such as `GET pods watch`; the most frequent first."""
    return dict(Counter(f"{each.method} {each.resource} {each.traffic}" for each in asked).most_common())


async def _for_ever() -> None:
    """Wait until the client disconnects and the handler is cancelled."""
    await asyncio.Event().wait()


def _lost(request: web.BaseRequest, response: web.StreamResponse | None = None) -> web.StreamResponse:
    _reset(request.transport)
    return response or web.Response()


def _reset(transport: asyncio.BaseTransport | None) -> None:
    """Close a connection with a TCP reset."""
    if not isinstance(transport, asyncio.Transport):
        return
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_ONCE)
    transport.abort()


def _bound(port: int = 0) -> socket.socket:
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    found.bind(("127.0.0.1", port))
    return found


def _traffic(request: web.BaseRequest) -> Traffic:
    if request.path.endswith("/log"):
        return Traffic.LOG
    return Traffic.WATCH if is_watch(request) else Traffic.REQUEST


def _resource(path: str) -> str:
    """Return the resource of a path: its plural, and the sub-resource of a named object."""
    plural, _, rest = path.partition("/namespaces/")[2].partition("/")[2].partition("/")
    return f"{plural}/{rest.partition('/')[2]}" if "/" in rest else plural


def _headers(upstream: aiohttp.ClientResponse) -> dict[str, str]:
    return {name: upstream.headers[name] for name in ("Content-Type", "Retry-After") if name in upstream.headers}


async def _unwatched(request: web.BaseRequest, blindness: Blindness) -> web.StreamResponse:
    """Refuse a watch, or open it and send nothing."""
    if blindness.code:
        return answers.refusal(blindness.code, _resource(request.path), retry_after=blindness.retry_after)
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    await _for_ever()
    return response


def _refused(request: web.BaseRequest, refusals: Refusals) -> web.Response:
    return answers.refusal(refusals.code, _resource(request.path), page=refusals.page)
