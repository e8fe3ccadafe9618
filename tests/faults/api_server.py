"""Direct access to the real API server behind the proxy, with an account that has the documented Role."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import aiohttp
from yarl import URL

from ptjob_provider.core.identity import JobRef, is_owned_by
from ptjob_provider.core.kubernetes.client import paths

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from ptjob_provider.core.identity import Owner

KIND = "PyTorchJob"
ANNOTATION = "faults"
_HEADERS = ("Authorization", "Accept", "Content-Type")
_RBAC = "rbac.authorization.k8s.io"
_MOMENT = 0.05


@dataclass(frozen=True, kw_only=True)
class ApiServer:
    """Address of the server, and the credentials of an account.

    Attributes:
        url: URL of the server.
        token: token of the account; "" if the connections use a client certificate.
        namespace: namespace in which the account has the documented rights.
        session: HTTP session of the connections.
        user: user to impersonate, which the account must be allowed to do; "": none.
    """

    url: str
    token: str
    namespace: str
    session: aiohttp.ClientSession
    user: str = ""

    @classmethod
    @contextlib.asynccontextmanager
    async def reached(
        cls, kubeconfig: Mapping[str, Any], namespace: str, *, certificate: tuple[Path, Path] | None = None
    ) -> AsyncIterator[ApiServer]:
        """Open connections to the server of a kubeconfig, with its token or with a certificate and its key."""
        cluster, user = kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        trust = ssl.create_default_context(cadata=authority)
        if certificate is not None:
            trust.load_cert_chain(*certificate)
        token = user["token"] if certificate is None else ""
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=trust, limit=0), timeout=aiohttp.ClientTimeout(total=None)
        ) as session:
            yield cls(url=cluster["server"], token=token, namespace=namespace, session=session)

    def acting_as(self, user: str) -> ApiServer:
        """Return access to the same server that impersonates this user."""
        return replace(self, user=user)

    def forward(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Forward a client's request with its own credential or as `user`; `target` is the path and query."""
        passed = {name: headers[name] for name in _HEADERS if name in headers}
        if self.user:
            passed.pop("Authorization", None)
            passed |= self._identity
        url = URL(self.url + target, encoded=True)
        return self.session.request(method, url, headers={**passed, "Accept-Encoding": "identity"}, data=body)

    async def job(self, name: str) -> dict[str, Any]:
        """Return a job of the namespace."""
        return await self._get(paths.jobs(KIND, self.namespace, name))

    async def pods(self, selector: str) -> list[dict[str, Any]]:
        """Return pods of the namespace."""
        return list((await self._get(paths.pods(self.namespace), labelSelector=selector))["items"])

    async def log(self, pod: str) -> list[str]:
        """Return the log lines of a pod that can still be read; none if the pod does not exist."""
        async with self._asked("GET", paths.pod_log(self.namespace, pod)) as answer:
            text = await answer.text()
            return text.splitlines() if answer.ok else []

    async def create_job(self, manifest: Mapping[str, Any]) -> JobRef:
        """Create a job and return its reference."""
        async with self._asked("POST", paths.jobs(KIND, self.namespace), body=manifest) as answer:
            answer.raise_for_status()
            return JobRef.of(await answer.json())

    async def create_secret(self, manifest: Mapping[str, Any]) -> None:
        async with self._asked("POST", f"/api/v1/namespaces/{self.namespace}/secrets", body=manifest) as answer:
            answer.raise_for_status()

    async def annotate_job(self, name: str, text: str) -> None:
        """Annotate a job, so that its watchers get an event."""
        change = {"metadata": {"annotations": {ANNOTATION: text}}}
        async with self._asked("PATCH", paths.jobs(KIND, self.namespace, name), body=change) as answer:
            answer.raise_for_status()

    async def delete_job(self, name: str) -> None:
        """Delete a job as another user would; a missing job is no error."""
        async with self._asked("DELETE", paths.jobs(KIND, self.namespace, name)) as answer:
            await answer.read()

    async def has_job(self, name: str) -> bool:
        """Return True if a job of this name exists."""
        async with self._asked("GET", paths.jobs(KIND, self.namespace, name)) as answer:
            return answer.status != HTTPStatus.NOT_FOUND

    async def version(self) -> int:
        """Return the server's current resource version."""
        found = await self._get(paths.jobs(KIND, self.namespace), limit="1")
        return int(found["metadata"]["resourceVersion"])

    async def grant(self, user: str, role: str) -> None:
        """Bind a user to a Role of the namespace."""
        binding = {
            "metadata": {"name": user},
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": role},
            "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": user}],
        }
        async with self._asked("POST", self._bindings, body=binding) as answer:
            answer.raise_for_status()

    async def revoke(self, user: str) -> None:
        """Delete the user's RoleBinding; a missing one is no error."""
        async with self._asked("DELETE", f"{self._bindings}/{user}") as answer:
            await answer.read()

    async def until_allowed(self) -> None:
        """Return when the user may list jobs: a grant takes effect a moment later."""
        while True:
            async with self._asked("GET", paths.jobs(KIND, self.namespace), limit="1") as answer:
                if answer.ok:
                    return
            await asyncio.sleep(_MOMENT)

    async def created_jobs(self) -> AsyncIterator[dict[str, Any]]:
        """Yield each existing and each new job at least once; never ends by itself."""
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

    @property
    def _bindings(self) -> str:
        return f"/apis/{_RBAC}/v1/namespaces/{self.namespace}/rolebindings"

    @property
    def _identity(self) -> dict[str, str]:
        credential = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {**credential, "Impersonate-User": self.user} if self.user else credential

    async def _get(self, path: str, **query: str) -> dict[str, Any]:
        async with self._asked("GET", path, **query) as answer:
            answer.raise_for_status()
            found: dict[str, Any] = await answer.json()
            return found

    def _asked(
        self, method: str, path: str, *, body: Mapping[str, Any] | None = None, **query: str
    ) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        content = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {**self._identity, "Content-Type": content}
        data = json.dumps(body) if body is not None else None
        return self.session.request(method, self.url + path, params=query, headers=headers, data=data)


@dataclass(frozen=True, kw_only=True)
class Servers:
    """Access to the same server by two accounts.

    Attributes:
        account: has the documented rights.
        administrator: may do everything, and may impersonate.
    """

    account: ApiServer
    administrator: ApiServer


class Witness:
    """Recorder of every job created in a namespace, also of those deleted later."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._jobs: dict[str, dict[str, Any]] = {}

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[Witness]:
        """Record jobs while the context is open."""
        looking = asyncio.create_task(self._look())
        try:
            yield self
        finally:
            looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looking

    def created(self, owner: Owner) -> list[str]:
        """Return the names of all jobs ever created for this owner, one per object."""
        return [job["metadata"]["name"] for job in self._jobs.values() if is_owned_by(job, owner)]

    async def _look(self) -> None:
        async for job in self._server.created_jobs():
            self._jobs[job["metadata"]["uid"]] = {"metadata": job["metadata"]}


async def _lines(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield whole lines of any length."""
    rest = b""
    async for chunk in answer.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
