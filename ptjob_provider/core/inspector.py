"""The inspector port: events, nodes, claims and permissions around jobs, for people who inspect a cluster.

A cluster and this machine implement it. It is separate from the port in `backend`, which is all that submitting and
following need: a Role that is enough for that may not be enough for this, and each error names the missing verb.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Protocol

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.versions import Record

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from ptjob_provider.core.identity import JobRef, Manifest
    from ptjob_provider.core.logs import LogLine
    from ptjob_provider.core.tensorboard import TensorBoardPlan

CLAIM_SIZE = "10Gi"
CLAIM_MODE = "ReadWriteMany"
FILES_IMAGE = "python:3.13-alpine"
"""Default image of the pod that mounts a claim for its files."""


@dataclass(frozen=True, kw_only=True)
class NodeUse(Record):
    """Capacity and requests of a node; None where they are not counted.

    Attributes:
        name: of the node.
        address: its internal one.
        role: such as `control-plane`; "" for a plain worker.
        status: `ready`, or the reason why no pod is scheduled to it.
        gpus: its GPUs of any kind.
        gpus_taken: assigned to pods.
        cpu: allocatable cores.
        cpu_taken: requested cores.
        memory: allocatable bytes.
        memory_taken: requested bytes.
    """

    name: str
    address: str
    role: str
    status: str
    gpus: int
    gpus_taken: int
    cpu: float | None = None
    cpu_taken: float | None = None
    memory: int | None = None
    memory_taken: int | None = None


@dataclass(frozen=True, kw_only=True)
class ReplicaUse(Record):
    """Current usage of one replica; None where it is not measured.

    Attributes:
        replica: its pod's name.
        node: its node; "" if not scheduled.
        phase: of its pod; "" if there is none.
        gpus: assigned GPUs.
        cpu: cores.
        memory: bytes of its working set.
        disk: bytes written; local back-end only.
    """

    replica: str
    node: str = ""
    phase: str = ""
    gpus: int = 0
    cpu: float | None = None
    memory: int | None = None
    disk: int | None = None


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Usage of one job's replicas, and what prevents a complete answer; "" for nothing."""

    replicas: Sequence[ReplicaUse]
    unknown: str = ""


@dataclass(frozen=True, kw_only=True)
class Check(Record):
    """Result of one check.

    Attributes:
        about: its subject.
        is_good: True if jobs can use it; None: not visible, or not needed.
        said: the finding.
        advice: what to do; "" for nothing.
    """

    about: str
    is_good: bool | None
    said: str
    advice: str = ""


def ignore(_: str) -> None:
    """Discard the message."""


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """Settings for access to the files on a claim inside a cluster.

    Attributes:
        image: of the pod that mounts it; it has `python3`.
        user: its user id; None: the image's.
        timeout: seconds until the pod runs.
        tell: called with the reason for waiting, if the pod takes longer than a moment.
        pod: further fields of the pod, such as its user and its nodes; instead of `user`.
        container: further fields of its container.
    """

    image: str
    user: int | None = None
    timeout: float = 300.0
    tell: Callable[[str], None] = field(default=ignore, repr=False, compare=False)
    pod: Manifest = field(default_factory=dict)
    container: Manifest = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TensorBoardView:
    """A folder of events to show in TensorBoard.

    Attributes:
        namespace: of the claim.
        plan: the folder and the image with TensorBoard; the claim is "" if unknown.
        job: the job that has written it, whose rank 0 sets the user and the node; None if unknown.
        user: overrides the user id; None: the job's, else the image's.
        port: of this machine; 0: any free port.
        timeout: seconds until it is shown.
        tell: called with the reason for waiting, if it takes longer than a moment.
    """

    namespace: str
    plan: TensorBoardPlan
    job: Manifest | None = None
    user: int | None = None
    port: int = 0
    timeout: float = 300.0
    tell: Callable[[str], None] = field(default=ignore, repr=False, compare=False)


def check_known(what: TensorBoardView) -> None:
    """Check that the location of the events is known.

    Raises:
        InvalidSpec: the job has declared none.
    """
    if not what.plan.claim:
        advice = "declare `tfevents`, or say where they are: ptjob tensorboard pvc://CLAIM/PATH"
        raise InvalidSpec(f"tfevents: the job has declared none; {advice}")


class Inspector(Protocol):
    """Interface to the surroundings of jobs."""

    async def events(self, ref: JobRef, pods: Sequence[str]) -> Sequence[Manifest]:
        """Return the retained core/v1 Events about the job and its pods, in no order."""

    def container_log(self, ref: JobRef, pod: str, container: str, *, follow: bool) -> AsyncGenerator[LogLine, None]:
        """Yield the lines of any container of a job's pod, from its beginning; with `follow` until it ends.

        Raises:
            JobNotFound: there is no such pod.
            InvalidSpec: the pod has no such container, or it has not started.
            UnsupportedByBackend: no such container runs on this back-end.
        """

    async def nodes(self) -> Sequence[NodeUse]:
        """Return the capacity and the requests of each node.

        Raises:
            PermissionDenied: nodes or pods may not be read; the text names the verb.
        """

    async def usage(self, job: Manifest) -> Usage:
        """Return the current usage of each replica of a job, as far as it is measured."""

    async def claims(self, namespace: str) -> Sequence[Manifest]:
        """Return the claims of the namespace, in no order.

        Raises:
            PermissionDenied: they may not be listed; the text names the verb.
        """

    async def create_claim(
        self, namespace: str, name: str, *, size: str | None, mode: str | None, storage_class: str | None
    ) -> Sequence[str]:
        """Create a claim, and return the requests that do not apply; it may stay unbound until it is mounted.

        Args:
            namespace: its namespace.
            name: its name.
            size: its capacity; None: CLAIM_SIZE.
            mode: its access mode; None: CLAIM_MODE.
            storage_class: its StorageClass; None: the cluster's default.

        Raises:
            JobAlreadyExists: the name is taken.
        """

    def files(self, namespace: str, claim: str, *, options: FileOptions) -> AbstractAsyncContextManager[ClaimFiles]:
        """Open the files on a claim; whatever was created for access is deleted afterwards.

        Raises:
            NotThere: the claim does not exist.
            ClusterError: the files are not accessible; the text says why.
        """

    async def tensorboard_url(self, ref: JobRef) -> str:
        """Return the address of a job's TensorBoard that the job itself does not name; "" if none is found.

        Finds Arena's Service by its name and labels.
        """

    def tensorboard(self, what: TensorBoardView) -> AbstractAsyncContextManager[str]:
        """Show a folder of events at a local address; whatever was started is stopped afterwards.

        Raises:
            InvalidSpec: the claim does not exist, or the port is taken.
            UnsupportedByBackend: TensorBoard is not installed.
            ClusterError: it may not be started or reached, or did not run in time; the text says why.
        """

    async def checks(self, namespace: str) -> Sequence[Check]:
        """Check everything that jobs of this namespace need; return the results, the most important first."""


class ClaimFiles(Protocol):
    """The files on one claim."""

    async def listed(self, path: str) -> Sequence[dict[str, Any]]:
        """Return name, size and modification time of a folder's entries, or of a file.

        Raises:
            InvalidSpec: the path does not exist, or leaves the claim.
        """

    async def pack(self, path: str, stream: IO[bytes]) -> None:
        """Write a file or a folder to the stream, as a tar archive.

        Raises:
            InvalidSpec: as above.
        """

    async def unpack(self, stream: IO[bytes], folder: str, name: str) -> None:
        """Extract an archive as `name` into a folder of the claim, which is created.

        Raises:
            InvalidSpec: an entry leaves the claim, or is neither file nor folder.
        """
