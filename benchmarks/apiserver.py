"""Minimal client of an API server over plain aiohttp, for the setup of benchmarks and the simplest contender.

It shares no code with the measured clients, and has neither paging nor translation of errors.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import yaml

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

MERGE = "application/merge-patch+json"
JSON = "application/json"

_OVERLOADED = {429, 500, 503, 504}
_REPEATABLE = {"GET", "PATCH", "DELETE"}
_PAUSES = (1.0, 2.0, 4.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class ApiServer:
    """One API server, accessed with a kubeconfig's credentials."""

    url: str
    session: aiohttp.ClientSession

    async def request(
        self, method: str, path: str, *, body: Mapping[str, Any] | None = None, content_type: str = JSON
    ) -> dict[str, Any]:
        """Return the response's object; retry a few times if the server is too busy.

        Raises:
            aiohttp.ClientResponseError: the request was refused.
        """
        headers = {"Content-Type": content_type}
        for pause in _PAUSES:
            async with self.session.request(method, f"{self.url}{path}", json=body, headers=headers) as response:
                if response.status in _OVERLOADED and method in _REPEATABLE and pause:
                    await asyncio.sleep(pause)
                    continue
                response.raise_for_status()
                content: dict[str, Any] = await response.json()
                return content
        raise AssertionError("the last try returns or raises")

    async def patch(self, path: str, change: Mapping[str, Any]) -> dict[str, Any]:
        """Merge a change into an object; return the current object."""
        return await self.request("PATCH", path, body=change, content_type=MERGE)

    async def set_status(self, found: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
        """Write an object's status through the status subresource; return the current object."""
        return await self.patch(f"{path_of(found)}/status", {"status": status})

    async def touch(self, found: Mapping[str, Any], text: str) -> None:
        """Change an irrelevant part of an object, which sends the whole object to every watch again."""
        await self.patch(path_of(found), {"metadata": {"annotations": {"benchmark/touched": text}}})

    async def text(self, path: str) -> str:
        """Return a response that is not JSON, such as `/metrics`."""
        async with self.session.get(f"{self.url}{path}") as response:
            response.raise_for_status()
            return await response.text()


def path_of(found: Mapping[str, Any]) -> str:
    """Return the path of an object."""
    meta, version = found["metadata"], found["apiVersion"]
    root = "/api" if version == "v1" else "/apis"
    return f"{root}/{version}/namespaces/{meta['namespace']}/{found['kind'].lower()}s/{meta['name']}"


@asynccontextmanager
async def reached(kubeconfig: Path, *, connections: int = 32) -> AsyncIterator[ApiServer]:
    """Connect to the API server of a kubeconfig's only context, over at most this many connections."""
    access = yaml.safe_load(kubeconfig.read_text())  # noqa: ASYNC240 - a small file, before anything is measured
    cluster, user = access["clusters"][0]["cluster"], access["users"][0]["user"]
    headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
    connector = aiohttp.TCPConnector(ssl=_trust(cluster, user), limit=connections)
    limits = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=120)
    async with aiohttp.ClientSession(connector=connector, headers=headers, timeout=limits) as session:
        yield ApiServer(url=cluster["server"], session=session)


def _trust(cluster: Mapping[str, str], user: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=_decoded(cluster["certificate-authority-data"]).decode())
    if "client-key-data" in user:
        with tempfile.TemporaryDirectory() as folder:
            pair = Path(folder) / "pair.pem"
            pair.write_bytes(_decoded(user["client-certificate-data"]) + _decoded(user["client-key-data"]))
            context.load_cert_chain(pair)
    return context


def _decoded(text: str) -> bytes:
    return base64.b64decode(text)
