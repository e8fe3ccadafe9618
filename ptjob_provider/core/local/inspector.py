"""Implement the inspector port on this machine."""

from __future__ import annotations

import asyncio
import os
import shlex
import socket
from collections import deque
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any

import psutil

from ptjob_provider.core import kinds
from ptjob_provider.core.errors import InvalidSpec, JobAlreadyExists, NotThere, UnsupportedByBackend
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.in_pod import claim_files
from ptjob_provider.core.inspector import Check, NodeUse, ReplicaUse, Usage, check_located
from ptjob_provider.core.kinds.pytorchjob import CONTAINER
from ptjob_provider.core.local.config import gpu_ids
from ptjob_provider.core.local.launch import LOOPBACK, claim_directory, inside
from ptjob_provider.core.local.logs import LocalLog
from ptjob_provider.core.local.status import instant
from ptjob_provider.core.local.store import JobStore, make_private, read_json
from ptjob_provider.core.status import JobPhase

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
    from pathlib import Path

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.inspector import FileOptions, TensorBoardView
    from ptjob_provider.core.kinds.kind import Replica
    from ptjob_provider.core.local.config import LocalConfig
    from ptjob_provider.core.logs import LogLine

_NEWEST = 4 * 1024 * 1024
"""Bytes of a log in which its last lines are looked for: a million lines take more than the seconds that people wait.
"""

_NOT_MEASURED = "CPU and memory are not measured on this machine: its own `top` shows them"


class LocalInspector:
    """Inspects this machine; implements `inspector.Inspector`."""

    def __init__(self, config: LocalConfig) -> None:
        self._config = config
        self._store = JobStore(config.root)

    async def events(self, ref: JobRef, pods: Sequence[str]) -> Sequence[Manifest]:  # noqa: ARG002 - the port's
        """Return the Events about fields that do not apply on this machine, the only ones; see `Inspector.events`."""
        return read_json(self._store.files(ref.namespace, ref.name).notices) or []

    async def container_log(
        self, ref: JobRef, pod: str, container: str, *, follow: bool, tail: int | None = None
    ) -> AsyncGenerator[LogLine, None]:
        """Yield the last lines of the training; see `Inspector.container_log`.

        Raises:
            UnsupportedByBackend: another container's log is asked for; the text names its file.
        """
        files = self._store.files(ref.namespace, ref.name)
        if container != CONTAINER or follow or tail is None:
            file = files.log(pod, container)
            raise UnsupportedByBackend.of("--container", f"on this machine such a log is a file: {file}")
        last: deque[LogLine] = deque(maxlen=tail)
        async for line in LocalLog(files, pod, job_uid=ref.uid).lines(since=None, follow=False, newest=_NEWEST):
            last.append(line)
        for line in last:
            yield line

    async def nodes(self) -> Sequence[NodeUse]:
        """Return this machine; see `Inspector.nodes`."""
        gpus = gpu_ids(self._config.environment, self._config.gpus) if isinstance(self._config.gpus, int) else []
        use = NodeUse(
            name=socket.gethostname(),
            address=LOOPBACK,
            role="this machine",
            status="ready",
            gpus=len(gpus),
            gpus_taken=await self._gpus_taken(),
            cpu=float(len(os.sched_getaffinity(0))),
            memory=psutil.virtual_memory().total,
        )
        return [use]

    async def usage(self, job: Manifest) -> Usage:
        """Return the job's replicas without measurements; see `Inspector.usage`."""
        ref = JobRef.of(job)
        state = self._store.files(ref.namespace, ref.name).read_state()
        phases = {pod["metadata"]["name"]: pod["status"]["phase"] for pod in state.get("pods", ())}
        replicas = [_use(each, phases.get(each.name, "")) for each in kinds.replicas(job)]
        return Usage(replicas=replicas, unknown=_NOT_MEASURED)

    async def claims(self, namespace: str) -> Sequence[Manifest]:
        """Return a claim for each directory that replaces one; see `Inspector.claims`."""
        folder = self._config.claims_of(namespace)
        return [_claim(namespace, path) for path in sorted(folder.glob("*")) if path.is_dir()]

    async def create_claim(self, namespace: str, name: str, **_: str | None) -> None:
        """Create the claim's directory; size, mode and storage class do not apply. See `Inspector.create_claim`."""
        path = claim_directory(self._config.claims_of(namespace), name)
        try:
            make_private(path.parent)
            path.mkdir(mode=0o700)
        except FileExistsError:
            raise JobAlreadyExists(f"{namespace}/{name}: there is such a claim: {path}", code=409) from None

    @asynccontextmanager
    async def files(self, namespace: str, claim: str, *, options: FileOptions) -> AsyncIterator[LocalFiles]:  # noqa: ARG002 - the port's
        """Open the files in a claim's directory; see `Inspector.files`."""
        folder = claim_directory(self._config.claims_of(namespace), claim)
        if not folder.is_dir():
            raise NotThere.claim(claim, namespace, where=str(folder))
        yield LocalFiles(folder)

    @asynccontextmanager
    async def tensorboard(self, what: TensorBoardView) -> AsyncIterator[str]:
        """Yield the command that shows a folder, for the user to run; see `Inspector.tensorboard`."""
        check_located(what)
        root = claim_directory(self._config.claims_of(what.namespace), what.plan.claim)
        if not root.is_dir():
            raise NotThere.claim(what.plan.claim, what.namespace, where=str(root))
        yield f"tensorboard --logdir {shlex.quote(str(inside(root, what.plan.path, field='path')))}"

    async def checks(self, namespace: str) -> Sequence[Check]:
        """Return where jobs run; what a job lacks here is said when it is submitted. See `Inspector.checks`."""
        claims = self._config.claims_of(namespace)
        places = {"jobs' directory": self._config.root, "jobs' Python": self._config.interpreter, "claims": claims}
        return [Check(about=about, is_good=None, result=str(place)) for about, place in places.items()]

    async def _gpus_taken(self) -> int:
        jobs = await asyncio.to_thread(self._store.list, kinds.DEFAULT.KIND, "", {})
        running = [job for job in jobs if kinds.read_status(job).phase is JobPhase.RUNNING]
        return sum(replica.gpus for job in running for replica in kinds.replicas(job))


class LocalFiles:
    """Files in a directory; implements `inspector.ClaimFiles`."""

    def __init__(self, folder: Path) -> None:
        self._root = folder.resolve()

    async def listed(self, path: str) -> Sequence[dict[str, Any]]:
        """Return a folder's entries; see `ClaimFiles.listed`."""
        with self._as_invalid(path):
            return await asyncio.to_thread(lambda: claim_files.listed(claim_files.below(self._root, path)))

    async def pack(self, path: str, stream: IO[bytes]) -> None:
        """Write an archive; see `ClaimFiles.pack`."""
        with self._as_invalid(path), _closed_when_cancelled(stream):
            await asyncio.to_thread(lambda: claim_files.pack(claim_files.below(self._root, path), stream))

    async def unpack(self, stream: IO[bytes], folder: str, name: str) -> None:
        """Extract an archive; see `ClaimFiles.unpack`."""
        with self._as_invalid(folder), _closed_when_cancelled(stream):
            place = claim_files.below(self._root, folder)
            await asyncio.to_thread(lambda: claim_files.unpack(stream, self._root, place, name))

    @contextmanager
    def _as_invalid(self, path: str) -> Iterator[None]:
        place = self._root / path.lstrip("/")
        try:
            yield
        except SystemExit as error:
            raise InvalidSpec(f"{place}: {error}") from None
        except OSError as error:
            raise InvalidSpec(f"{place}: {error.strerror}: {error.filename}") from error


def _use(replica: Replica, phase: str) -> ReplicaUse:
    if phase != "Running":
        return ReplicaUse(replica=replica.name, phase=phase)
    return ReplicaUse(replica=replica.name, node=socket.gethostname(), phase=phase, gpus=replica.gpus)


def _claim(namespace: str, path: Path) -> dict[str, Any]:
    created = instant(datetime.fromtimestamp(int(path.stat().st_ctime), UTC))
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": path.name, "namespace": namespace, "creationTimestamp": created},
        "spec": {"accessModes": ["ReadWriteMany"], "volumeName": str(path)},
        "status": {"phase": "Bound"},
    }


@contextmanager
def _closed_when_cancelled(stream: IO[bytes]) -> Iterator[None]:
    """Close the stream if the task is cancelled: this ends the thread that copies, so that it replaces nothing."""
    try:
        yield
    except asyncio.CancelledError:
        stream.close()
        raise
