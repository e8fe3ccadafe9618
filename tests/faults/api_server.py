"""The real API server, reached directly with the account of the documented Role: what the proxy stands in front of."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
from yarl import URL

from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kubernetes import paths

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

KIND = "PyTorchJob"
ANNOTATION = "faults"
_HEADERS = ("Authorization", "Accept", "Content-Type")


@dataclass(frozen=True, kw_only=True)
class ApiServer:
    """Where it is, and an account's token.

    Attributes:
        url: of the server.
        token: of the account.
        namespace: in which the account may do what the documentation says.
        session: connections to it.
    """

    url: str
    token: str
    namespace: str
    session: aiohttp.ClientSession

    @classmethod
    @contextlib.asynccontextmanager
    async def reached(cls, kubeconfig: Mapping[str, Any], namespace: str) -> AsyncIterator[ApiServer]:
        """Have connections to the server of a kubeconfig with a token."""
        cluster, user = kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        trust = ssl.create_default_context(cadata=authority)
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=trust, limit=0), timeout=aiohttp.ClientTimeout(total=None)
        ) as session:
            yield cls(url=cluster["server"], token=user["token"], namespace=namespace, session=session)

    def forward(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send somebody's request as it came, with their own credential; `target` is path and query."""
        passed = {name: headers[name] for name in _HEADERS if name in headers}
        url = URL(self.url + target, encoded=True)
        return self.session.request(method, url, headers={**passed, "Accept-Encoding": "identity"}, data=body)

    async def job(self, name: str) -> dict[str, Any]:
        """Return a job of the namespace."""
        return await self._get(paths.jobs(KIND, self.namespace, name))

    async def pods(self, selector: str) -> list[dict[str, Any]]:
        """Return pods of the namespace."""
        return list((await self._get(paths.pods(self.namespace), labelSelector=selector))["items"])

    async def log(self, pod: str) -> list[str]:
        """Return the lines that a pod has written and that can still be read; none if there is no such pod."""
        async with self._asked("GET", paths.pod_log(self.namespace, pod)) as answer:
            text = await answer.text()
            return text.splitlines() if answer.ok else []

    async def create_job(self, manifest: Mapping[str, Any]) -> JobRef:
        """Create a job and return which one it is."""
        async with self._asked("POST", paths.jobs(KIND, self.namespace), body=manifest) as answer:
            answer.raise_for_status()
            return JobRef.of(await answer.json())

    async def annotate_job(self, name: str, text: str) -> None:
        """Write something on a job, so that its watchers have something to see."""
        change = {"metadata": {"annotations": {ANNOTATION: text}}}
        async with self._asked("PATCH", paths.jobs(KIND, self.namespace, name), body=change) as answer:
            answer.raise_for_status()

    async def delete_job(self, name: str) -> None:
        """Delete a job, as somebody else would; one that is gone is no error."""
        async with self._asked("DELETE", paths.jobs(KIND, self.namespace, name)) as answer:
            await answer.read()

    async def created_jobs(self) -> AsyncIterator[dict[str, Any]]:
        """Yield each job that is there or that comes, at least once, until nobody asks any more."""
        while True:
            found = await self._get(paths.jobs(KIND, self.namespace))
            for job in found["items"]:
                yield job
            query = {"watch": "true", "resourceVersion": found["metadata"]["resourceVersion"]}
            async with self._asked("GET", paths.jobs(KIND, self.namespace), **query) as answer:
                async for line in _lines(answer):
                    event = json.loads(line)
                    if event["type"] == "ADDED":
                        yield event["object"]

    async def _get(self, path: str, **query: str) -> dict[str, Any]:
        async with self._asked("GET", path, **query) as answer:
            answer.raise_for_status()
            found: dict[str, Any] = await answer.json()
            return found

    def _asked(
        self, method: str, path: str, *, body: Mapping[str, Any] | None = None, **query: str
    ) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        content = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content}
        data = json.dumps(body) if body is not None else None
        return self.session.request(method, self.url + path, params=query, headers=headers, data=data)


class Witness:
    """Sees every job that is created in a namespace, whatever becomes of it."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._names: dict[str, str] = {}

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[Witness]:
        """Look on."""
        looking = asyncio.create_task(self._look())
        try:
            yield self
        finally:
            looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looking

    def created(self, stem: str) -> list[str]:
        """Return the names of all jobs that ever began like this, one for each object."""
        return [name for name in self._names.values() if name.startswith(f"{stem}-")]

    async def _look(self) -> None:
        async for job in self._server.created_jobs():
            self._names[job["metadata"]["uid"]] = job["metadata"]["name"]


async def _lines(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield whole lines, however long they are."""
    rest = b""
    async for chunk in answer.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
