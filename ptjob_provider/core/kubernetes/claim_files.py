"""Access the files on a claim through a short-lived pod that mounts it.

The files are read and written by a program that runs in the pod as with `kubectl exec`. The pod has requests and
limits, no service account token and no Istio sidecar, and ends by itself after an hour. With a non-root user it passes
the PodSecurity level `restricted`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import secrets
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import IO, TYPE_CHECKING, Any

import aiohttp

from ptjob_provider.core.errors import ClusterUnavailable, InvalidSpec
from ptjob_provider.core.identity import PREFIX
from ptjob_provider.core.in_pod import claim_files
from ptjob_provider.core.kinds.pod_template import NO_ISTIO
from ptjob_provider.core.kubernetes.client import paths
from ptjob_provider.core.kubernetes.client.connection import channel_messages
from ptjob_provider.core.kubernetes.helper_pods import existing_claim, running
from ptjob_provider.core.kubernetes.pods import HELPER
from ptjob_provider.core.kubernetes.probe import ASKS_FOR, CONTAINER, RESOURCES, problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.inspector import FileOptions
    from ptjob_provider.core.kubernetes.client.http import Client

_ROOT = "/claim"
_LIFE = 3600
_PIECE = 256 * 1024
_IMAGE = "name an image that nodes can pull and that has `python3`"
_STDIN, _STDOUT, _STDERR, _STATUS = range(4)


def claim_pod(namespace: str, name: str, claim: str, options: FileOptions) -> Manifest:
    """Return the pod, which mounts the claim and sleeps."""
    user = options.user
    pod_user = {} if user is None else {"runAsUser": user, "runAsGroup": user, "fsGroup": user}
    restricted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {f"{PREFIX}/files-of": claim},
            "annotations": NO_ISTIO,
        },
        "spec": {
            **HELPER,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": _LIFE,
            "securityContext": {**pod_user, "seccompProfile": {"type": "RuntimeDefault"}},
            **options.pod,
            "containers": [
                {
                    "name": CONTAINER,
                    "image": options.image,
                    "command": ["python3", "-c", "import time; time.sleep(86400)"],
                    "env": [{"name": "PTJOB_FILES", "value": inspect.getsource(claim_files)}],
                    "resources": RESOURCES,
                    "securityContext": restricted if user else {},
                    **options.container,
                    "volumeMounts": [{"name": "claim", "mountPath": _ROOT}],
                }
            ],
            "volumes": [{"name": "claim", "persistentVolumeClaim": {"claimName": claim}}],
        },
    }


@asynccontextmanager
async def mounted(client: Client, namespace: str, claim: str, options: FileOptions) -> AsyncIterator[ClaimPod]:
    """Start a pod that mounts the claim, and yield the claim's files; the pod is deleted afterwards.

    Raises:
        NotThere: the claim does not exist.
        ClusterError: the pod may not be created, or did not run in time; the text says why.
    """
    await existing_claim(client, namespace, claim)
    name = f"ptjob-files-{secrets.token_hex(4)}"
    pod, obstacle = claim_pod(namespace, name, claim, options), partial(_obstacle, options=options)
    async with running(client, pod, _runs, seconds=options.timeout, obstacle=obstacle, tell=options.tell):
        yield ClaimPod(client, namespace, name)


class ClaimPod:
    """The files on a claim, through a pod that mounts it; implements `core.inspector.ClaimFiles`."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name

    async def listed(self, path: str) -> Sequence[dict[str, Any]]:
        """Return a folder's entries; see `ClaimFiles.listed`."""
        entries: list[dict[str, Any]] = await self._answer("list", path)
        return entries

    async def digest(self, path: str) -> str:
        """Return the SHA-256 of the content of a file that gzip has compressed.

        Raises:
            InvalidSpec: the file does not exist, is damaged, or leaves the claim.
        """
        return str(await self._answer("digest", path))

    async def _answer(self, verb: str, path: str) -> Any:
        pieces: list[bytes] = []
        await self._run(path, [verb, _ROOT, path], output=pieces.append)
        return json.loads(b"".join(pieces))

    async def pack(self, path: str, stream: IO[bytes]) -> None:
        """Write files of the claim as an archive to the stream; see `ClaimFiles.pack`."""
        await self._run(path, ["pack", _ROOT, path], output=stream.write)

    async def unpack(self, stream: IO[bytes], folder: str, name: str) -> None:
        """Extract an archive from the stream to the claim; see `ClaimFiles.unpack`."""
        await self._run(folder, ["unpack", _ROOT, folder, name], stdin=stream)

    async def _run(
        self, path: str, arguments: list[str], *, output: Any = None, stdin: IO[bytes] | None = None
    ) -> None:
        """Run `claim_files` in the pod.

        Args:
            path: the path on the claim, for error messages.
            arguments: arguments of the program.
            output: called with each piece of its standard output.
            stdin: its standard input; None for none.

        Raises:
            InvalidSpec: the program failed; the text has the last line of its output.
            ClusterError: the program could not be run.
        """
        program = "import os, sys; exec(compile(os.environ['PTJOB_FILES'], 'claim_files.py', 'exec'))"
        command = ["python3", "-c", program, *arguments]
        query = [("container", CONTAINER), ("stdout", "true"), ("stderr", "true")]
        query += [("stdin", "true")] if stdin is not None else []
        query += [("command", word) for word in command]
        messages: list[bytes] = []
        async with self._client.socket(f"{paths.pods(self._namespace, self._name)}/exec", query) as socket:
            writing = asyncio.create_task(_write(socket, stdin))
            try:
                status = await _read(socket, {_STDOUT: output or messages.append, _STDERR: messages.append})
            finally:
                writing.cancel()
                with suppress(asyncio.CancelledError, aiohttp.ClientError, OSError):
                    await writing
        if status.get("status") != "Success":
            lines = b"".join(messages).decode(errors="replace").strip().splitlines()
            why = lines[-1] if lines else status.get("message", "the program failed")
            raise InvalidSpec(f"path /{path.lstrip('/')}: {why}")


async def _write(socket: aiohttp.ClientWebSocketResponse, stdin: IO[bytes] | None) -> None:
    """Send the whole stream. Its end is not sent: the program recognizes the end of an archive."""
    while stdin is not None and (piece := await asyncio.to_thread(stdin.read, _PIECE)):
        await socket.send_bytes(bytes([_STDIN]) + piece)


async def _read(socket: aiohttp.ClientWebSocketResponse, consumers: dict[int, Any]) -> dict[str, Any]:
    """Pass the data of each channel to its consumer until the program ends, and return the status.

    Raises:
        ClusterUnavailable: the connection broke before, or the pod's life is over and nothing says so.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(_LIFE):
            async for channel, data in channel_messages(socket):
                if channel == _STATUS:
                    status: dict[str, Any] = json.loads(data)
                    return status
                if data and channel in consumers:
                    consumers[channel](data)
    raise ClusterUnavailable("the connection to the pod broke before its program had ended")


def _runs(pod: Manifest) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def _obstacle(pod: Manifest, events: Sequence[Manifest], *, options: FileOptions) -> str:
    """Return why the pod does not run, and what to do."""
    why = problem(pod, events) or "does not run yet"
    about_nodes = f"see that a node that can mount the claim has {ASKS_FOR} left"
    about_image = f"{_IMAGE}: {options.title('probe_image')}, or --image of `ptjob data`"
    about_time = f"{options.title('probe_timeout')} gives it longer than {options.timeout:g} s"
    return f"that was to reach the files {why}; {about_image}; {about_nodes}; {about_time}"
