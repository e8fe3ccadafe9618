"""What is around jobs where they run: events, nodes, claims, what one may do. For whoever looks; no job needs it.

Two implement it, a cluster and this machine. It is apart from the port of `backend`, which is all that submitting and
following a job takes: a Role that is enough for that need not be enough for this, and each answer says which verb is
missing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import IO, TYPE_CHECKING, Any, Protocol

from ptjob_provider.core.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from ptjob_provider.core.identity import JobRef, Manifest
    from ptjob_provider.core.logs import LogLine
    from ptjob_provider.core.tensorboard import TensorBoardPlan

CLAIM_SIZE = "10Gi"
CLAIM_MODE = "ReadWriteMany"


@dataclass(frozen=True, kw_only=True)
class NodeUse:
    """What a node has and what pods have asked for of it; None where nobody counts.

    Attributes:
        name: of the node.
        address: its internal one.
        role: such as `control-plane`; "" for one that only works.
        status: `ready`, or why no pod gets on it.
        gpus: it has, of whichever kind.
        gpus_taken: pods have been given.
        cpu: cores that pods may have.
        cpu_taken: cores that pods have asked for.
        memory: bytes that pods may have.
        memory_taken: bytes that pods have asked for.
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

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe fields."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class ReplicaUse:
    """What one replica uses now; None where nobody measures it.

    Attributes:
        replica: its pod's name.
        node: where it runs; "" if it has no place.
        phase: of its pod; "" if there is none.
        gpus: it has been given.
        cpu: cores.
        memory: bytes of its working set.
        disk: bytes that it has written; on one machine only.
    """

    replica: str
    node: str = ""
    phase: str = ""
    gpus: int = 0
    cpu: float | None = None
    memory: int | None = None
    disk: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe fields."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What the replicas of one job use, and what stands in the way of knowing more; "" if nothing does."""

    replicas: Sequence[ReplicaUse]
    unknown: str = ""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was looked at.

    Attributes:
        about: what.
        is_good: whether it is as jobs need it; None: it could not be seen, or is not needed.
        said: what was seen.
        advice: what to do; "" if there is nothing to do.
    """

    about: str
    is_good: bool | None
    said: str
    advice: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe fields."""
        return asdict(self)


def ignore(_: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """How files on a claim are reached inside a cluster.

    Attributes:
        image: of the pod that mounts it; it has `python3`.
        user: as whom; None: as the image says.
        timeout: seconds until the pod runs.
        tell: takes a sentence about what the pod waits for, where that takes longer than a moment.
    """

    image: str
    user: int | None = None
    timeout: float = 300.0
    tell: Callable[[str], None] = field(default=ignore, repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A folder of events that somebody wants to look at.

    Attributes:
        namespace: of the claim.
        plan: which folder, and which image has TensorBoard; the claim "" where nobody knows.
        job: that has written it, from whose rank 0 a pod takes as whom and where it runs; None: nobody knows.
        user: as whom, instead; None: as the job, else as the image says.
        port: of this machine; 0: any that is free.
        timeout: seconds until it is shown.
        tell: takes a sentence about what it waits for, where that takes longer than a moment.
    """

    namespace: str
    plan: TensorBoardPlan
    job: Manifest | None = None
    user: int | None = None
    port: int = 0
    timeout: float = 300.0
    tell: Callable[[str], None] = field(default=ignore, repr=False, compare=False)


def check_known(what: Shown) -> None:
    """Pass if anybody knows where the events are.

    Raises:
        InvalidSpec: the job has declared none.
    """
    if not what.plan.claim:
        advice = "declare `tfevents`, or say where they are: ptjob tensorboard pvc://CLAIM/PATH"
        raise InvalidSpec(f"tfevents: the job has declared none; {advice}")


class Site(Protocol):
    """Where jobs run, as somebody sees it who looks around."""

    async def events(self, ref: JobRef, pods: Sequence[str]) -> Sequence[Manifest]:
        """Return core/v1 Events about the job and its pods, in no order; as far as they are kept."""

    def container_log(self, ref: JobRef, pod: str, container: str, *, follow: bool) -> AsyncGenerator[LogLine, None]:
        """Yield the lines of any container of a job's pod, from its beginning; with `follow` until it ends.

        Raises:
            JobNotFound: there is no such pod.
            InvalidSpec: the pod has no such container, or it has not begun.
            UnsupportedByBackend: nothing of that name runs here.
        """

    async def nodes(self) -> Sequence[NodeUse]:
        """Return what each node has and what is taken of it.

        Raises:
            PermissionDenied: that may not be seen; the text names the verb.
        """

    async def usage(self, job: Manifest) -> Usage:
        """Return what each replica of a job uses now, as far as somebody measures it."""

    async def claims(self, namespace: str) -> Sequence[Manifest]:
        """Return the claims of the namespace, in no order.

        Raises:
            PermissionDenied: they may not be listed; the text names the verb.
        """

    async def create_claim(
        self, namespace: str, name: str, *, size: str | None, mode: str | None, storage_class: str | None
    ) -> Sequence[str]:
        """Have a new claim, and say what of the wishes does not apply; it may bind only when something mounts it.

        Args:
            namespace: its namespace.
            name: its name.
            size: how much it can hold; None: CLAIM_SIZE.
            mode: whether pods of several nodes can mount it; None: CLAIM_MODE.
            storage_class: what makes the volume; None: the cluster's.

        Raises:
            JobAlreadyExists: there is one of that name.
        """

    def files(self, namespace: str, claim: str, *, options: FileOptions) -> AbstractAsyncContextManager[ClaimFiles]:
        """Give the files on a claim; what was needed to reach them goes afterwards.

        Raises:
            NotThere: there is no such claim.
            ClusterError: they cannot be reached; the text says why.
        """

    async def tensorboard_url(self, ref: JobRef) -> str:
        """Return where a TensorBoard beside the job is reached of which the job does not tell; "" if none is seen.

        Arena's is one: its Service is found by its name and labels.
        """

    def tensorboard(self, what: Shown) -> AbstractAsyncContextManager[str]:
        """Give the address of this machine at which a folder of events is shown; what was started goes afterwards.

        Raises:
            InvalidSpec: there is no such claim, or the port is taken.
            UnsupportedByBackend: TensorBoard is not installed.
            ClusterError: it may not be started or reached, or did not run in time; the text says why.
        """

    async def checks(self, namespace: str) -> Sequence[Check]:
        """Return what was looked at of all that jobs of this namespace need, the most important first."""


class ClaimFiles(Protocol):
    """The files on one claim."""

    async def listed(self, path: str) -> Sequence[dict[str, Any]]:
        """Return name, bytes and the instant of the last change of what is in a folder, or of a file.

        Raises:
            InvalidSpec: there is nothing of that name, or it leads out of the claim.
        """

    async def pack(self, path: str, stream: IO[bytes]) -> None:
        """Write a file or a folder to the stream, as a tar archive.

        Raises:
            InvalidSpec: as above.
        """

    async def unpack(self, stream: IO[bytes], folder: str, name: str) -> None:
        """Write what an archive holds as `name` into a folder of the claim, which is made.

        Raises:
            InvalidSpec: it leads out of the claim, or is neither file nor folder.
        """
