"""Open HTTP connections to one API server: TLS, client certificates, proxies, and probes of idle connections."""

from __future__ import annotations

import json
import socket
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import aiohttp

from ptjob_provider.core.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.client.credentials import Endpoint

_OPTIONS = {"TCP_KEEPIDLE": 120, "TCP_KEEPINTVL": 30, "TCP_KEEPCNT": 6}
"""Seconds before and between probes, and tolerated losses: Airflow's own values for its Kubernetes clients."""


def keep_alive(answer: aiohttp.ClientResponse) -> None:
    """Enable TCP keep-alive on the response's connection, as far as the system supports it."""
    transport = answer.connection.transport if answer.connection else None
    connected = transport.get_extra_info("socket") if transport else None
    if connected is None:
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS.items():
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


_BUFFER = 2 * 1024 * 1024
"""Bytes of an unread response that are buffered: fits an object of etcd's maximum size, as one line of a watch."""


class Connection:
    """Connections with the same settings; any number at once, as each log stream needs one."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        connector = aiohttp.TCPConnector(limit=0, ssl=_trust(endpoint))
        self._session = aiohttp.ClientSession(connector=connector, trust_env=True, read_bufsize=_BUFFER)

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
        """Send a request and return the response, whatever its status, with unread body."""
        parameters = f"?{urlencode(query)}" if query else ""
        return await self._session.request(
            method,
            f"{self._endpoint.host}{path}{parameters}",
            headers=headers,
            data=None if body is None else json.dumps(body),
            timeout=limits,
            proxy=self._endpoint.proxy,
            server_hostname=self._endpoint.tls_server_name,
        )

    async def socket(
        self, path: str, *, query: Sequence[tuple[str, str]], headers: Mapping[str, str]
    ) -> aiohttp.ClientWebSocketResponse:
        """Open a web socket with the protocol of pods' streams."""
        return await self._session.ws_connect(
            f"{self._endpoint.host}{path}?{urlencode(query)}",
            protocols=("v4.channel.k8s.io",),
            headers=headers,
            proxy=self._endpoint.proxy,
            server_hostname=self._endpoint.tls_server_name,
            max_msg_size=0,
        )

    async def close(self) -> None:
        """Close all open connections."""
        await self._session.close()


def _trust(endpoint: Endpoint) -> ssl.SSLContext:
    """Return the TLS context: trusted certificates, and the client certificate if there is one.

    Raises:
        InvalidSpec: a file holds none, or a key that does not match.
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
    """Return why a certificate file is unreadable, without the library's source line."""
    return str(getattr(error, "strerror", None) or error).partition(" (_ssl.c")[0]
