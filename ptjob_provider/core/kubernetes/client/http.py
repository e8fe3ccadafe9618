"""HTTP client of the API server: sends and receives JSON, with time limits, and retries where these are safe.

`connection` opens the sockets, `credentials` loads the address and the credential.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import aiohttp

from ptjob_provider.core.errors import ClusterError, ClusterUnavailable, InvalidSpec, PTJobError
from ptjob_provider.core.kubernetes.client.api_errors import UNSURE, Refusal, is_cut
from ptjob_provider.core.kubernetes.client.connection import Connection, keep_alive
from ptjob_provider.core.kubernetes.client.credentials import Credentials
from ptjob_provider.core.kubernetes.client.paths import described
from ptjob_provider.core.shared import Backoff, shared_source

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.config import ClusterConfig

logger = logging.getLogger(__name__)

_PAUSES = (0.35, 6.0)
_CONNECT_TIMEOUT = 10.0
_SOCKET_TIMEOUT = 30.0
_LOADING_TIMEOUT = 60.0
"""Maximum seconds for which requests wait for a credential; a kubeconfig may be on a file system that hangs."""

_IDLE = 30.0
"""Seconds for which an unused client keeps its connections open."""

_PAGE = 500
_SLICE = 64 * 1024
_MERGE = "application/merge-patch+json"
_JSON = "application/json, */*"
_QUOTED = 200
_UNAUTHORIZED = 401
_WRITES = {"POST", "PATCH"}


@dataclass(frozen=True, kw_only=True)
class Page:
    """Page of a collection, and the collection's resource version, from which a watch can start."""

    items: Sequence[Manifest]
    version: str


class Client:
    """Client of one API server on one event loop; a `shared.ChangeSource`. Use `shared_client` to get one.

    Attributes:
        log_streams: limits the concurrent log streams; readers get them in the order in which they ask.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self.log_streams = asyncio.Semaphore(config.max_log_streams)
        self._timeout = config.timeout
        self._attempts = config.attempts
        self._tcp_keepalive = config.tcp_keepalive
        self._credentials = Credentials(config)
        self._connection: Connection | None = None
        self._retired: list[Connection] = []
        self._loading: asyncio.Task[Connection] | None = None

    async def get(self, path: str, **query: str) -> Manifest:
        """Return an object, or a list object."""
        return await self._request("GET", path, query=query)

    async def object(self, path: str) -> Manifest:
        """Return one object.

        Raises:
            ClusterError: the response is not a Kubernetes object; it may be a gateway's.
        """
        manifest = await self.get(path)
        if not (manifest.get("kind") and isinstance(meta := manifest.get("metadata"), dict) and meta.get("uid")):
            raise _not_from_kubernetes(path, manifest)
        return manifest

    async def items(self, path: str, **query: str) -> list[Manifest]:
        """Return all objects of a collection, each with `apiVersion` and `kind`, which the server omits in lists."""
        return [each async for page in self.pages(path, **query) for each in page.items]

    async def pages(self, path: str, **query: str) -> AsyncGenerator[Page, None]:
        """Yield the pages of a collection.

        Raises:
            ClusterError: a response is not a Kubernetes list; it may be a gateway's.
        """
        page_query = {**query, "limit": str(_PAGE)}
        while True:
            page = await self.get(path, **page_query)
            try:
                shared = {"apiVersion": page["apiVersion"], "kind": page["kind"].removesuffix("List")}
                items = [{**shared, **each} for each in page.get("items") or ()]
                version, more = page["metadata"]["resourceVersion"], page["metadata"].get("continue")
            except (KeyError, TypeError, AttributeError):
                raise _not_from_kubernetes(path, page) from None
            yield Page(items=items, version=version)
            if not more:
                return
            page_query["continue"] = more

    async def post(self, path: str, body: Manifest, **query: str) -> Manifest:
        """Create an object and return its current state.

        A create without a response is retried although the object may exist: a second create of the same name raises
        JobAlreadyExists, and the caller then checks the owner.
        """
        return await self._request("POST", path, body=body, query={"fieldValidation": "Strict", **query})

    async def patch(self, path: str, change: Manifest, **query: str) -> Manifest:
        """Apply a JSON merge patch (RFC 7386) and return the object's current state."""
        return await self._request("PATCH", path, body=change, query=query, content_type=_MERGE)

    async def delete(self, path: str, options: Manifest | None = None, **query: str) -> Manifest:
        """Delete an object; `options` is a meta/v1 DeleteOptions."""
        return await self._request("DELETE", path, body=options, query=query)

    @asynccontextmanager
    async def stream(self, path: str, *, silence: float, **query: str) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        """Open a watch or a log, and yield an iterator over its bytes as they arrive.

        Args:
            path: path of the resource.
            silence: seconds without any byte after which the connection is considered dead.
            query: parameters of the request.

        Raises:
            PTJobError: the request was refused. The iterator raises ClusterUnavailable if the connection breaks.
        """
        limits = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT, sock_read=silence)
        request = described("GET", path)
        try:
            response = await self._authorized("GET", path, query=query, limits=limits)
        except Refusal as refusal:
            raise refusal.error(request) from refusal
        if self._tcp_keepalive:
            keep_alive(response)
        try:
            yield _chunks(response, request)
        finally:
            response.close()

    @asynccontextmanager
    async def socket(
        self, path: str, query: Sequence[tuple[str, str]]
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a web socket to a program or a port of a pod.

        Raises:
            PTJobError: the request was refused, or got no response.
        """
        connection = await self._connected()
        request, headers = described("POST", path), self._credentials.headers
        try:
            async with asyncio.timeout(_SOCKET_TIMEOUT):
                socket = await connection.socket(path, query=query, headers=headers)
        except aiohttp.WSServerHandshakeError as error:
            message = error.message
            if error.status == HTTPStatus.FORBIDDEN:  # the server's words are not read; these are what it says
                message = f'cannot create resource "pods/{path.rpartition("/")[2]}" in API group ""'
            raise Refusal(code=error.status, message=message, named=True).error(request) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Refusal(code=0, reason=type(error).__name__, message=str(error)).error(request) from error
        try:
            yield socket
        finally:
            await socket.close()

    async def run(self) -> None:
        """Keep the connections open until cancelled; see `shared.ChangeSource`."""
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            if self._loading is not None:
                self._loading.cancel()
            for connection in [*self._retired, *([self._connection] if self._connection else [])]:
                await connection.close()

    def fail(self, error: BaseException) -> None:
        """Do nothing: requests fail by themselves."""

    async def _request(self, method: str, path: str, **options: Any) -> Manifest:
        backoff = Backoff(*_PAUSES)
        while True:
            try:
                return await self._once(method, path, **options)
            except Refusal as refusal:
                backoff.failures += 1
                if not refusal.is_temporary or backoff.failures >= self._attempts:
                    is_unsure = method == "POST" and backoff.failures > 1
                    request = described(method, path)
                    raise refusal.error(request, sent=method in _WRITES, is_unsure=is_unsure) from refusal
                retry_after = refusal.retry_after or 0.0
            except PTJobError as error:  # of loading the credential anew
                if method != "POST" or not backoff.failures:
                    raise
                raise ClusterUnavailable(f"{described(method, path)}: {error}; {UNSURE}") from error
            await backoff.pause(at_least=retry_after)

    async def _once(self, method: str, path: str, **options: Any) -> Manifest:
        limits = aiohttp.ClientTimeout(total=self._timeout, sock_connect=_CONNECT_TIMEOUT)
        response = await self._authorized(method, path, limits=limits, **options)
        with _connection_errors_as_refusals():
            return _parsed(await response.read())

    async def _authorized(self, method: str, path: str, **options: Any) -> aiohttp.ClientResponse:
        """Return a successful response with an unread body; on 401, reload the credential and retry once."""
        try:
            return await self._send(method, path, **options)
        except Refusal as refusal:
            if refusal.code != _UNAUTHORIZED:
                raise
        logger.info("the API server refused the credential; loading it anew")
        await self._load()
        return await self._send(method, path, **options)

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        limits: aiohttp.ClientTimeout,
        body: Manifest | None = None,
        content_type: str = "application/json",
    ) -> aiohttp.ClientResponse:
        connection = await self._connected()
        headers = {"Accept": _JSON, "Content-Type": content_type, **self._credentials.headers}
        with _connection_errors_as_refusals():
            async with asyncio.timeout(self._timeout):  # a stream has no other limit until its first byte
                response = await connection.request(
                    method, path, query=query, headers=headers, body=body, limits=limits
                )
                if response.ok:
                    return response
                data = await response.read()
        if response.content_type == "application/json" and is_cut(data):
            _parsed(data)  # raises for a truncated error, which is treated as a missing response
        raise Refusal.read(response.status, data, response.headers.get("Retry-After"))

    async def _connected(self) -> Connection:
        """Return the connection; load the credential first if there is none, or if it is about to expire."""
        if self._connection is None or self._credentials.is_due:
            return await self._load()
        return self._connection

    async def _load(self) -> Connection:
        """Load the address and the credential. All requests wait for one load, so a plugin that hangs runs once.

        Raises:
            ClusterUnavailable: the load takes too long; it goes on, for the next request.
        """
        loading = self._loading
        if loading is None or loading.done():
            self._loading = loading = asyncio.create_task(self._load_now())
        done, _ = await asyncio.wait({loading}, timeout=_LOADING_TIMEOUT)
        if not done:
            raise ClusterUnavailable(
                f"the credential for the API server could not be loaded within {_LOADING_TIMEOUT:.0f} s; see "
                "whether its files can be read"
            )
        return loading.result()

    async def _load_now(self) -> Connection:
        """Load the address and the credential; open a new connection if its settings have changed."""
        await self._credentials.load()
        endpoint = self._credentials.endpoint.without_credential
        if self._connection is None:
            self._connection = Connection(endpoint)
        elif self._connection.endpoint != endpoint:
            try:
                connection = Connection(endpoint)
            except InvalidSpec as error:  # somebody writes its files just now
                raise ClusterError(str(error)) from error
            self._retired.append(self._connection)  # its streams continue
            self._connection = connection
        return self._connection


@asynccontextmanager
async def shared_client(config: ClusterConfig) -> AsyncIterator[Client]:
    """Yield the client that all users of this cluster on this event loop share."""
    async with shared_source(config, lambda: Client(config), linger=_IDLE) as client:
        yield client


async def _chunks(response: aiohttp.ClientResponse, request: str) -> AsyncGenerator[bytes, None]:
    try:
        with _connection_errors_as_refusals():
            async for chunk in response.content.iter_any():
                for start in range(0, len(chunk), _SLICE):
                    yield chunk[start : start + _SLICE]
                    await asyncio.sleep(0)  # a log that arrives faster than it is read must not block the loop
    except Refusal as refusal:
        raise refusal.error(request) from refusal


def _parsed(data: bytes) -> Manifest:
    try:
        value = json.loads(data or b"{}")
    except ValueError:
        if is_cut(data):  # a gateway truncated the response, and ended it normally
            raise Refusal(code=0, reason="Truncated", message="the answer is not JSON") from None
        value = None
    if not isinstance(value, dict):
        text = " ".join(data[:_QUOTED].decode(errors="replace").split())
        raise Refusal(code=HTTPStatus.OK, message=f"the response is not from Kubernetes: {text}")
    return value


def _not_from_kubernetes(path: str, response: Manifest) -> ClusterError:
    text = json.dumps(response)[:_QUOTED]
    return ClusterError(f"{described('GET', path)}: the response is not from Kubernetes: {text}")


@contextlib.contextmanager
def _connection_errors_as_refusals() -> Any:
    """Convert the exceptions of a missing response into `Refusal` with code 0."""
    try:
        yield
    except aiohttp.ClientConnectorCertificateError as error:
        raise Refusal(code=0, reason=type(error).__name__, message=str(error), final=True) from error
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        message = str(error) or ("no answer in time" if isinstance(error, TimeoutError) else "the connection broke")
        raise Refusal(code=0, reason=type(error).__name__, message=message) from error
