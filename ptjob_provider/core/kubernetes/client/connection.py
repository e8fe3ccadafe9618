"""Open HTTP connections to one API server, with TLS, client certificates, proxies and TCP keep-alive."""

from __future__ import annotations

import base64
import json
import re
import socket
import ssl
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from ptjob_provider.core.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.client.credentials import Endpoint

_OPTIONS = {"TCP_KEEPIDLE": 120, "TCP_KEEPINTVL": 30, "TCP_KEEPCNT": 6}
"""Seconds before the first probe, seconds between probes, number of lost probes: Airflow's values for its clients."""

_BUFFER = 2 * 1024 * 1024
"""Buffer size in bytes of an unread response: one line of a watch fits, whose object may have etcd's maximum size."""

_HEARTBEAT = 120.0
"""Seconds of silence after which a web socket is probed. It counts as dead if half of them pass without an answer: a
kubelet answers only when the program has read its input, and kubectl waits a minute, too."""


def keep_alive(response: aiohttp.ClientResponse) -> None:
    """Enable TCP keep-alive on the response's connection, as far as the system supports it."""
    transport = response.connection.transport if response.connection else None
    tcp_socket = transport.get_extra_info("socket") if transport else None
    if tcp_socket is None:
        return
    tcp_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS.items():
        if hasattr(socket, name):
            tcp_socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Connection:
    """Connections to one endpoint. Their number is not limited, because each log stream needs one."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._proxy, secret = _without_secret(endpoint.proxy or _ambient_proxy(endpoint.host))
        self._proxy_headers = secret if endpoint.host.startswith("https:") else {}
        connector = aiohttp.TCPConnector(limit=0, ssl=_trust(endpoint))
        self._session = aiohttp.ClientSession(
            connector=connector,
            read_bufsize=_BUFFER,
            headers={} if self._proxy_headers else secret,  # without TLS, requests themselves go to the proxy
        )

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: Manifest | None,
        limits: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        """Send a request and return the response, with any status and an unread body."""
        parameters = f"?{urlencode(query)}" if query else ""
        return await self._session.request(
            method,
            f"{self.endpoint.host}{path}{parameters}",
            headers=headers,
            data=None if body is None else json.dumps(body),
            timeout=limits,
            proxy=self._proxy,
            proxy_headers=self._proxy_headers,
            server_hostname=self.endpoint.tls_server_name,
        )

    async def socket(
        self, path: str, *, query: Sequence[tuple[str, str]], headers: Mapping[str, str]
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a web socket with the Kubernetes protocol for exec and port forwarding."""
        return await self._session.ws_connect(
            f"{self.endpoint.host}{path}?{urlencode(query)}",
            protocols=("v4.channel.k8s.io",),
            headers=headers,
            proxy=self._proxy,
            proxy_headers=self._proxy_headers,
            server_hostname=self.endpoint.tls_server_name,
            max_msg_size=0,
            heartbeat=_HEARTBEAT,
        )

    async def close(self) -> None:
        """Close all open connections."""
        await self._session.close()


async def channel_messages(socket: aiohttp.ClientWebSocketResponse) -> AsyncGenerator[tuple[int, bytes], None]:
    """Yield channel number and data of each message until the socket is closed."""
    async for message in socket:
        if message.type is aiohttp.WSMsgType.BINARY and message.data:
            yield message.data[0], message.data[1:]


def _ambient_proxy(server: str) -> str | None:
    """Return the environment's proxy for a server; aiohttp reads it only together with netrc.

    A password of netrc would be sent in place of the bearer token.
    """
    parts = urlsplit(server)
    return None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)


def _without_secret(proxy: str | None) -> tuple[str | None, dict[str, str]]:
    """Return a proxy's address without user and password, which aiohttp's errors would quote, and a header of these.

    As in curl, the scheme may be missing. The password may have characters that are not allowed in an address.
    """
    if not proxy:
        return None, {}
    address = proxy if re.match(r"[\w+.-]+://", proxy) else f"http://{proxy}"
    scheme, _, rest = address.partition("://")
    secret, _, place = rest.rpartition("@")
    if not secret:
        return address, {}
    user, _, password = map(unquote, secret.partition(":"))
    value = base64.b64encode(f"{user}:{password}".encode()).decode()
    return f"{scheme}://{place}", {"Proxy-Authorization": f"Basic {value}"}


def _trust(endpoint: Endpoint) -> ssl.SSLContext:
    """Return the TLS context: trusted certificates, and the client certificate if there is one.

    Raises:
        InvalidSpec: a file has no certificate, or the key does not match the certificate.
    """
    try:
        context = ssl.create_default_context(cafile=endpoint.ca_file)
    except (OSError, ValueError) as error:
        raise InvalidSpec(
            f"certificate-authority: {endpoint.ca_file} cannot be used ({_why(error)}); give a PEM file"
        ) from error
    if endpoint.cert_file:
        try:
            context.load_cert_chain(endpoint.cert_file, keyfile=endpoint.key_file)
        except (OSError, ValueError) as error:
            advice = "give a PEM file with the certificate and its key"
            raise InvalidSpec(
                f"client-certificate: {endpoint.cert_file} cannot be used ({_why(error)}); {advice}"
            ) from error
    if not endpoint.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _why(error: Exception) -> str:
    """Return why a certificate file cannot be used, without the source line that OpenSSL adds."""
    return str(getattr(error, "strerror", None) or error).partition(" (_ssl.c")[0]
