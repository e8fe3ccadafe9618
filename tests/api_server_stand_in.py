"""Stand-in for an API server that fails on demand, which a real one cannot be made to do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.kubernetes import ClusterConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

STATUS = {429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout", 403: "Forbidden"}
SILENT = 0
"""Used as a code: the request is read and never answered."""
RESET = -1
"""Used as a code: the connection is closed without an answer."""
STALLED = -2
"""Used as a code: the headers are sent, and nothing else; those of an error, if its code is given, too."""

_ROUNDS = 10
"""Iterations of the event loop; asyncio needs fewer to open an accepted connection or to close one."""


@dataclass
class StandInApiServer:
    """Answers each request with the next code of its script; at the end of the script with 200 and an empty list.

    Attributes:
        script: Codes, or pairs of a code and a body (JSON or text) or seconds for `Retry-After`.
        answers: Returns what a script would have for a request line, in place of the script.
        requests: Request lines that arrived; `came_at` has the loop time of each.
        heads: Request lines with their headers.
        bodies: Body of each request, or None.
    """

    script: list[Any] = field(default_factory=list)
    answers: Callable[[str], Any] | None = None
    requests: list[str] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    came_at: list[float] = field(default_factory=list)
    url: str = ""
    answering: set[asyncio.Task[None]] = field(default_factory=set)

    def config(self, **settings: Any) -> ClusterConfig:
        """Return the configuration of a client for this server."""
        cluster = {"name": "c", "cluster": {"server": self.url}}
        context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [cluster],
            "contexts": [context],
            "users": [{"name": "u", "user": {}}],
            "current-context": "x",
        }
        return ClusterConfig(kube_config=json.dumps(document), **settings)

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the only request of a connection and close it, even if the request never begins."""
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self.answering.add(task)
        task.add_done_callback(self.answering.discard)
        task.add_done_callback(lambda _: writer.close())

    async def end(self) -> None:
        """Close all connections, including accepted ones that are not open yet."""
        for _ in range(_ROUNDS):
            await asyncio.sleep(0)
        ending = tuple(self.answering)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        for _ in range(_ROUNDS):
            await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            self.requests.append(head.splitlines()[0])
            self.came_at.append(asyncio.get_running_loop().time())
            length = re.search(r"(?im)^content-length: *([1-9]\d*)", head)
            self.bodies.append(json.loads(await reader.readexactly(int(length[1]))) if length else None)
            step = self.answers(self.requests[-1]) if self.answers else self.script.pop(0) if self.script else 200
            await self._answer(writer, step)

    async def _answer(self, writer: asyncio.StreamWriter, step: Any) -> None:
        code, extra = step if isinstance(step, tuple) else (step, None)
        if code == STALLED:
            headers = "Content-Type: text/plain\r\nContent-Length: 9"
            writer.write(f"HTTP/1.1 {extra or 200} X\r\n{headers}\r\n\r\n".encode())
        if code in {SILENT, STALLED}:
            await asyncio.Event().wait()
        elif code != RESET:
            writer.write(_response(code, extra))
            await writer.drain()


@contextlib.asynccontextmanager
async def stand_in_api_server(*script: Any) -> AsyncIterator[StandInApiServer]:
    """Run the server on the loopback address."""
    stand_in = StandInApiServer(script=list(script))
    server = await asyncio.start_server(stand_in.connected, "127.0.0.1", 0)
    stand_in.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield stand_in
    finally:
        server.close()
        await stand_in.end()


def _response(code: int, extra: Any) -> bytes:
    headers = f"Retry-After: {extra}\r\n" if isinstance(extra, int) else ""
    body = extra.encode() if isinstance(extra, str) else json.dumps(_body(code, extra)).encode()
    form = "text/plain" if isinstance(extra, str) else "application/json"
    fixed = f"Content-Type: {form}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
    start = f"HTTP/1.1 {code} X\r\n{fixed}{headers}\r\n"
    return start.encode() + body


def _body(code: int, extra: Any) -> dict[str, Any]:
    if isinstance(extra, dict):
        return extra
    if code in STATUS:
        return {"kind": "Status", "code": code, "reason": STATUS[code], "message": f"said {code}"}
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}
