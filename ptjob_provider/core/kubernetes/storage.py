"""Access claims on a cluster: their files through a short-lived pod, and their annotations by a watch.

Equivalent to `kubectl exec`, without kubectl. The pod passes PodSecurity `restricted` if its user is given, has
requests and limits, no service account token and no Istio, and ends by itself after an hour.

Reads only the claims' metadata. A single claim is watched by name, so that a Role may be limited to it; from the second
claim of a namespace on, that one and all later ones share a watch of them all.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import secrets
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import IO, TYPE_CHECKING, Any

import aiohttp

from ptjob_provider.core.backend import Claim
from ptjob_provider.core.errors import ClusterUnavailable, InvalidSpec, JobNotFound, NotThere, PTJobError
from ptjob_provider.core.identity import PREFIX
from ptjob_provider.core.in_pod import claim_files
from ptjob_provider.core.kubernetes.client import paths
from ptjob_provider.core.kubernetes.client.http import lease
from ptjob_provider.core.kubernetes.informer.reflector import Applied, Complete, Deleted, Reflector, Refused
from ptjob_provider.core.kubernetes.inspection import until
from ptjob_provider.core.kubernetes.probe import ASKS_FOR, CONTAINER, RESOURCES, seen
from ptjob_provider.core.shared import Notifier, alone_or_all, joined

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.inspector import FileOptions
    from ptjob_provider.core.kubernetes.client.http import Client
    from ptjob_provider.core.kubernetes.config import ClusterConfig

_ROOT = "/claim"
_LIFE = 3600
_PIECE = 256 * 1024
_IMAGE = "name an image that nodes can pull and that has `python3`: --image, or [ptjob] probe_image"
_STDIN, _STDOUT, _STDERR, _STATUS = range(4)


def claim_pod(namespace: str, name: str, claim: str, options: FileOptions) -> Manifest:
    """Return the pod that mounts a claim and sleeps."""
    user = options.user
    pod_user = {} if user is None else {"runAsUser": user, "runAsGroup": user, "fsGroup": user}
    bare = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True} if user else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {f"{PREFIX}/files-of": claim},
            "annotations": {"sidecar.istio.io/inject": "false"},
        },
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": _LIFE,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {**pod_user, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": CONTAINER,
                    "image": options.image,
                    "command": ["python3", "-c", "import time; time.sleep(86400)"],
                    "env": [{"name": "PTJOB_FILES", "value": inspect.getsource(claim_files)}],
                    "resources": RESOURCES,
                    "securityContext": bare,
                    "volumeMounts": [{"name": "claim", "mountPath": _ROOT}],
                }
            ],
            "volumes": [{"name": "claim", "persistentVolumeClaim": {"claimName": claim}}],
        },
    }


@asynccontextmanager
async def mounted(client: Client, namespace: str, claim: str, options: FileOptions) -> AsyncIterator[ClaimPod]:
    """Open the files on a claim; the pod that mounts it is deleted afterwards.

    Raises:
        NotThere: the claim does not exist.
        ClusterError: the pod may not be created, or did not run in time; the text says why.
    """
    try:
        await client.get(paths.claims(namespace, claim))
    except JobNotFound:
        raise NotThere.claim(claim, namespace) from None
    name = f"ptjob-files-{secrets.token_hex(4)}"
    await client.post(paths.pods(namespace), claim_pod(namespace, name, claim, options))
    try:
        obstacle = partial(_obstacle, seconds=options.timeout)
        await until(client, namespace, name, _runs, seconds=options.timeout, obstacle=obstacle, tell=options.tell)
        yield ClaimPod(client, namespace, name)
    finally:
        with suppress(PTJobError):
            await client.delete(paths.pods(namespace, name))


class ClaimPod:
    """The files on a claim, through a pod that mounts it; implements `site.ClaimFiles`."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name

    async def listed(self, path: str) -> Sequence[dict[str, Any]]:
        """Return a folder's entries; see `ClaimFiles.listed`."""
        pieces: list[bytes] = []
        await self._run(path, ["list", _ROOT, path], output=pieces.append)
        found: list[dict[str, Any]] = json.loads(b"".join(pieces))
        return found

    async def pack(self, path: str, stream: IO[bytes]) -> None:
        """Write an archive; see `ClaimFiles.pack`."""
        await self._run(path, ["pack", _ROOT, path], output=stream.write)

    async def unpack(self, stream: IO[bytes], folder: str, name: str) -> None:
        """Extract an archive; see `ClaimFiles.unpack`."""
        await self._run(folder, ["unpack", _ROOT, folder, name], given=stream)

    async def _run(
        self, path: str, arguments: list[str], *, output: Any = None, given: IO[bytes] | None = None
    ) -> None:
        """Run `claim_files` in the pod, with its streams.

        Raises:
            InvalidSpec: the program failed; carries its message.
            ClusterError: it could not be run.
        """
        program = "import os, sys; exec(compile(os.environ['PTJOB_FILES'], 'claim_files.py', 'exec'))"
        command = ["python3", "-c", program, *arguments]
        query = [("container", CONTAINER), ("stdout", "true"), ("stderr", "true")]
        query += [("stdin", "true")] if given is not None else []
        query += [("command", word) for word in command]
        said: list[bytes] = []
        async with self._client.socket(f"{paths.pods(self._namespace, self._name)}/exec", query) as socket:
            writing = asyncio.create_task(_write(socket, given))
            try:
                status = await _read(socket, {_STDOUT: output or said.append, _STDERR: said.append})
            finally:
                writing.cancel()
                with suppress(asyncio.CancelledError, aiohttp.ClientError, OSError):
                    await writing
        if status.get("status") != "Success":
            words = b"".join(said).decode(errors="replace").strip().splitlines()
            raise InvalidSpec.of("path", path, words[-1] if words else str(status.get("message", "the program failed")))


async def _write(socket: aiohttp.ClientWebSocketResponse, given: IO[bytes] | None) -> None:
    """Send all of a stream; the program detects an archive's end by itself."""
    while given is not None and (piece := await asyncio.to_thread(given.read, _PIECE)):
        await socket.send_bytes(bytes([_STDIN]) + piece)


async def _read(socket: aiohttp.ClientWebSocketResponse, takers: dict[int, Any]) -> dict[str, Any]:
    """Forward the data of each channel until the status arrives."""
    async for message in socket:
        if message.type is aiohttp.WSMsgType.BINARY and message.data:
            channel, data = message.data[0], message.data[1:]
            if channel == _STATUS:
                status: dict[str, Any] = json.loads(data)
                return status
            if data and channel in takers:
                takers[channel](data)
    raise ClusterUnavailable("the connection to the pod broke before its program had ended")


def _runs(pod: Manifest) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def _obstacle(pod: Manifest, events: Sequence[Manifest], *, seconds: float) -> str:
    """Return why the pod does not run, and what to do."""
    found = (seen(pod, events) if pod else "") or "does not run yet"
    room = f"see that a node that can mount the claim has {ASKS_FOR} left"
    time = f"[ptjob] probe_timeout gives it longer than {seconds:g} s"
    return f"that was to reach the files {found}; {_IMAGE}; {room}; {time}"


_LINGER = 10.0
"""Seconds that a watch stays open for the next follower."""


@dataclass(frozen=True, kw_only=True)
class ClaimSelection:
    """Scope of a watch; equal ones share it.

    Attributes:
        name: of the one claim; "" for all of the namespace.
    """

    config: ClusterConfig
    namespace: str
    name: str = ""

    @property
    def query(self) -> dict[str, str]:
        """Return the query that selects them."""
        return {"fieldSelector": f"metadata.name={self.name}"} if self.name else {}


class ClaimBoard:
    """Cache of the claims of a selection; a `hub.Source`."""

    def __init__(self, selection: ClaimSelection) -> None:
        self.box = Notifier()
        self._selection = selection
        self._claims: dict[str, Claim] = {}
        self._is_complete = False

    async def run(self) -> None:
        """Update the cache until cancelled; see `hub.Source`."""
        selection, path = self._selection, paths.claims(self._selection.namespace)
        async with lease(selection.config) as client:
            watch = Reflector(client, path, selection.query, metadata_only=True, known=self._uids)
            async with aclosing(watch.news()) as news:
                async for each in news:
                    if isinstance(each, Applied):
                        self._take(each)
                    elif isinstance(each, Deleted):
                        self._lose(each.object["metadata"]["name"])
                    elif isinstance(each, Refused):
                        raise each.error
                    elif isinstance(each, Complete):
                        self._claims = {name: was for name, was in self._claims.items() if was.uid not in each.gone}
                        self._is_complete = True
                        self.box.ring()

    def fail(self, error: BaseException) -> None:
        """See `hub.Source`."""
        self.box.fail(error)

    async def states(self, name: str) -> AsyncGenerator[Claim | None, None]:
        """Yield one claim's states; see `Backend.watch_claim`."""
        await self.box.until(lambda: self._is_complete)
        while True:
            seen = self._claims.get(name)
            yield seen
            await self.box.until(lambda seen=seen: self._claims.get(name) != seen)  # type: ignore[misc]

    def _take(self, news: Applied) -> None:
        meta = news.object["metadata"]
        self._claims[meta["name"]] = Claim(uid=meta["uid"], annotations=meta.get("annotations") or {})
        self.box.ring()

    def _uids(self) -> set[str]:
        return {claim.uid for claim in self._claims.values()}

    def _lose(self, name: str) -> None:
        self._claims.pop(name, None)
        self.box.ring()


async def watched_claim(config: ClusterConfig, namespace: str, name: str) -> AsyncGenerator[Claim | None, None]:
    """Yield the claim's states; see `Backend.watch_claim`.

    Raises:
        ClusterError: the server refuses the watch.
    """
    whole = ClaimSelection(config=config, namespace=namespace)
    selection = alone_or_all(replace(whole, name=name), whole, lambda each: replace(each, name=""))
    async with (
        joined(selection, lambda: ClaimBoard(selection), linger=_LINGER) as board,
        aclosing(board.states(name)) as states,
    ):
        async for state in states:
            yield state
