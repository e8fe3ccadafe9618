"""Define the inspector port: events, nodes, claims and checks around jobs, for people who inspect a cluster.

Both back-ends implement this port. It is separate from the port in `backend`, which is all that submitting and
following need. A Role that permits these may not permit everything here, so each error names the missing verb.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Protocol

from ptjob_provider.core.errors import InvalidSpec, in_ptjob
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
    """Capacity and requests of a node; None for figures that are not counted.

    Attributes:
        name: the node's name.
        address: its internal address.
        role: its role, such as `control-plane`; "" for a plain worker.
        status: `ready`, or the reason why no pod is scheduled to it.
        gpus: number of its GPUs, of any kind.
        gpus_taken: number of GPUs assigned to pods.
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
    """Current usage of one replica; None for figures that are not measured.

    Attributes:
        replica: the name of its pod.
        node: the name of its node; "" if the pod is not scheduled.
        phase: the phase of its pod; "" if there is no pod.
        gpus: number of assigned GPUs.
        cpu: used cores.
        memory: bytes of the working set.
    """

    replica: str
    node: str = ""
    phase: str = ""
    gpus: int = 0
    cpu: float | None = None
    memory: int | None = None


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Usage of one job's replicas.

    Attributes:
        replicas: usage of each replica.
        unknown: why figures are missing; "" if none are.
    """

    replicas: Sequence[ReplicaUse]
    unknown: str = ""


@dataclass(frozen=True, kw_only=True)
class Check(Record):
    """Result of one check.

    Attributes:
        about: what was checked.
        is_good: True if jobs can use it; None if it is not visible or not needed.
        result: the result as text.
        advice: what to do; "" if there is nothing to do.
    """

    about: str
    is_good: bool | None
    result: str
    advice: str = ""


def ignore(_: str) -> None:
    """Discard a message."""


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """Settings for access to the files on a claim inside a cluster.

    Attributes:
        image: image of the pod that mounts the claim; it must have `python3`.
        user: user id of the pod; None: the image's.
        timeout: maximum seconds until the pod runs.
        tell: called with the reason for waiting, if the pod does not run at once.
        pod: further fields of the pod, such as its user and its nodes; replaces `user`.
        container: further fields of the pod's container.
        title: returns an option's name as users write it, for messages.
    """

    image: str
    user: int | None = None
    timeout: float = 300.0
    tell: Callable[[str], None] = field(default=ignore, repr=False, compare=False)
    pod: Manifest = field(default_factory=dict)
    container: Manifest = field(default_factory=dict)
    title: Callable[[str], str] = field(default=in_ptjob, repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class TensorBoardView:
    """A folder of events to show in TensorBoard.

    Attributes:
        namespace: the namespace of the claim.
        plan: the claim with the folder, and the image of TensorBoard; its claim is "" if unknown.
        job: the job that has written the events, whose rank 0 determines user and node; None if unknown.
        user: user id of TensorBoard; None: the job's, else the image's.
        port: port of this machine; 0: any free port.
        timeout: maximum seconds until TensorBoard is reachable.
        tell: called with the reason for waiting, if TensorBoard is not reachable at once.
    """

    namespace: str
    plan: TensorBoardPlan
    job: Manifest | None = None
    user: int | None = None
    port: int = 0
    timeout: float = 300.0
    tell: Callable[[str], None] = field(default=ignore, repr=False, compare=False)


def check_located(what: TensorBoardView) -> None:
    """Check that the location of the events is known.

    Raises:
        InvalidSpec: the job declares no events.
    """
    if not what.plan.claim:
        advice = "declare `tfevents`, or say where they are: ptjob tensorboard pvc://CLAIM/PATH"
        raise InvalidSpec.at("tfevents", f"the job has declared none; {advice}")


class Inspector(Protocol):
    """Interface to the cluster or machine around the jobs."""

    async def events(self, ref: JobRef, pods: Sequence[str]) -> Sequence[Manifest]:
        """Return the core/v1 Events about the job and its pods that still exist, in no particular order."""

    def container_log(
        self, ref: JobRef, pod: str, container: str, *, follow: bool, tail: int | None = None
    ) -> AsyncGenerator[LogLine, None]:
        """Yield the log of any container of a job's pod, by one request; with `follow`, until the container ends.

        Args:
            ref: the job.
            pod: the pod's name.
            container: the container's name.
            follow: wait for further lines.
            tail: number of last lines to begin with, as the node stores them; None begins with the first line.

        Raises:
            JobNotFound: there is no such pod.
            ClusterUnavailable: the node does not answer, or has no log.
            InvalidSpec: the pod has no such container, or the container has not started.
            UnsupportedByBackend: the back-end does not run such a container.
        """

    async def nodes(self) -> Sequence[NodeUse]:
        """Return the capacity and the requests of each node.

        Raises:
            PermissionDenied: nodes or pods may not be read; the text names the verb.
        """

    async def usage(self, job: Manifest) -> Usage:
        """Return the current usage of each replica of a job, as far as usage is measured."""

    async def claims(self, namespace: str) -> Sequence[Manifest]:
        """Return the claims of the namespace, in no particular order.

        Raises:
            PermissionDenied: claims may not be listed; the text names the verb.
        """

    async def create_claim(
        self, namespace: str, name: str, *, size: str | None, mode: str | None, storage_class: str | None
    ) -> None:
        """Create a claim, which may stay unbound until it is mounted.

        Args:
            namespace: the claim's namespace.
            name: the claim's name.
            size: its capacity; None: CLAIM_SIZE.
            mode: its access mode; None: CLAIM_MODE.
            storage_class: its StorageClass; None: the cluster's default.

        Raises:
            JobAlreadyExists: the name is taken.
        """

    def files(self, namespace: str, claim: str, *, options: FileOptions) -> AbstractAsyncContextManager[ClaimFiles]:
        """Open the files on a claim; objects that this creates are deleted when the context ends.

        Raises:
            NotThere: the claim does not exist.
            ClusterError: the files are not accessible; the text has the reason.
        """

    def tensorboard(self, what: TensorBoardView) -> AbstractAsyncContextManager[str]:
        """Show a folder of events at a local address; TensorBoard is stopped when the context ends.

        The local back-end starts nothing, and yields a command instead of an address.

        Raises:
            InvalidSpec: the claim does not exist, or the port is taken.
            ClusterError: TensorBoard may not be started or reached, or did not run in time; the text has the reason.
        """

    async def checks(self, namespace: str) -> Sequence[Check]:
        """Check everything that jobs of this namespace need, and return the results, the most important first."""


class ClaimFiles(Protocol):
    """The files on one claim."""

    async def listed(self, path: str) -> Sequence[dict[str, Any]]:
        """Return name, size and modification time of each entry of a folder, or of a file.

        Raises:
            InvalidSpec: the path does not exist, or leaves the claim.
        """

    async def pack(self, path: str, stream: IO[bytes]) -> None:
        """Write a file or a folder to the stream, as a tar archive.

        Raises:
            InvalidSpec: the path does not exist, or leaves the claim.
        """

    async def unpack(self, stream: IO[bytes], folder: str, name: str) -> None:
        """Extract a tar archive into a folder of the claim, which is created; its first entry is renamed to `name`.

        Raises:
            InvalidSpec: an entry leaves the claim, or is neither a file nor a folder.
        """
