"""A proxy for a real S3 server that refuses, breaks, truncates or ignores requests on demand, and counts them.

Requests are forwarded unchanged, with the host that the client has signed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web

from demo.stack import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s3_server import S3Server

ERROR = '<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{text}</Message></Error>'


class FaultyS3:
    """The proxy; `harm` selects the fault of every list request until it is changed.

    Attributes:
        harm: "", "403", "500", "silence", "reset", "cut xml", "fewer" or "endless".
        requests: Number of requests by method, with "list" for list requests.
    """

    def __init__(self, store: S3Server) -> None:
        self.harm = ""
        self.requests: Counter[str] = Counter()
        self.port = free_port()
        self._store = store
        self._released = asyncio.Event()
        self._session: aiohttp.ClientSession | None = None

    @property
    def endpoint(self) -> str:
        """The URL of the proxy."""
        return f"http://127.0.0.1:{self.port}"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Forward a request, or apply the fault to it."""
        is_listing = request.method == "GET" and "list-type" in request.query
        self.requests["list" if is_listing else request.method.lower()] += 1
        if not is_listing or not self.harm:
            return await self._pass(request)
        return await getattr(self, "_" + self.harm.replace(" ", "_"))(request)

    async def _pass(self, request: web.Request) -> web.Response:
        status, headers, body = await self._ask(request)
        return web.Response(status=status, headers=headers, body=body)

    async def _ask(self, request: web.Request) -> tuple[int, dict[str, str], bytes]:
        assert self._session is not None
        url = f"{self._store.endpoint}{request.raw_path}"
        async with self._session.request(
            request.method,
            aiohttp.client.URL(url, encoded=True),
            headers=request.headers,
            data=await request.read(),
        ) as answer:
            kept = {name: value for name, value in answer.headers.items() if name not in {"Content-Length", "Date"}}
            return answer.status, kept, await answer.read()

    async def _403(self, _request: web.Request) -> web.Response:
        return web.Response(status=403, text=ERROR.format(code="AccessDenied", text="Access Denied."))

    async def _500(self, _request: web.Request) -> web.Response:
        return web.Response(status=500, text=ERROR.format(code="InternalError", text="We encountered a problem."))

    async def _silence(self, _request: web.Request) -> web.Response:
        await self._released.wait()
        return web.Response(status=503)

    async def _reset(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def _cut_xml(self, request: web.Request) -> web.Response:
        """Half of the document with a matching length: the response is complete, the listing is not."""
        status, headers, body = await self._ask(request)
        return web.Response(status=status, headers=headers, body=body[: len(body) // 2])

    async def _fewer(self, request: web.Request) -> web.Response:
        """A complete document without one of its entries: it counts more keys than it has."""
        status, headers, body = await self._ask(request)
        first, _, rest = body.partition(b"<Contents>")
        _, _, rest = rest.partition(b"</Contents>")
        return web.Response(status=status, headers=headers, body=first + rest)

    async def _endless(self, request: web.Request) -> web.Response:
        """The listing says that there is more, without a token for the next page."""
        status, headers, body = await self._ask(request)
        said = body.replace(b"<IsTruncated>false<", b"<IsTruncated>true<")
        return web.Response(status=status, headers=headers, body=said)

    async def serve(self, ready: threading.Event, stop: asyncio.Event) -> None:
        """Serve until `stop` is set."""
        timeout = aiohttp.ClientTimeout(total=120)
        async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as self._session:
            application = web.Application(client_max_size=100_000_000)
            application.router.add_route("*", "/{path:.*}", self.handle)
            runner = web.AppRunner(application, shutdown_timeout=1, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", self.port).start()
            ready.set()
            await stop.wait()
            self._released.set()
            await runner.cleanup()


@contextlib.contextmanager
def before(store: S3Server) -> Iterator[FaultyS3]:
    """Run a proxy for this store in a separate thread."""
    gateway, ready = FaultyS3(store), threading.Event()
    loop, stop = asyncio.new_event_loop(), asyncio.Event()

    def run() -> None:
        with contextlib.closing(loop):
            loop.run_until_complete(gateway.serve(ready, stop))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        assert ready.wait(30)
        yield gateway
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
