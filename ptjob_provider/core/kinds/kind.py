"""What a kind of job is: all that differs between one CRD and another, and is asked for outside of `kinds`.

A kind is a package or a module of this folder that has these names; `kinds.KINDS` lists them. They are functions from
values to values: a job's object and its pods come in as the API server wrote them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from ptjob_provider.core.identity import Manifest, Owner
    from ptjob_provider.core.outputs import ResolvedOutputs
    from ptjob_provider.core.recorder import Termination
    from ptjob_provider.core.spec import Installation, TrainingJob
    from ptjob_provider.core.status import JobStatus

DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, kw_only=True)
class Replica:
    """One pod of a job.

    Attributes:
        name: stays the same when the pod is made again; where the pods' own names do, it is that of the pod.
        role: `master` or `worker`, as the operator's labels have it.
        index: within the role.
        rank: of the pod within the job (a node's rank, where a pod has several processes).
        gpus: how many it asks for.
        template: of its pod, as far as the job's object tells of it.
    """

    name: str
    role: str
    index: int
    rank: int
    gpus: int
    template: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class PodOwner:
    """Which job a pod says that it belongs to; "" where it says nothing.

    Attributes:
        name: of the job.
        uid: of the job.
    """

    name: str = ""
    uid: str = ""


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """What a job names as saying how it runs: another object, which has to be there before it.

    Attributes:
        kind: `ClusterTrainingRuntime`, or `TrainingRuntime` for one of the job's namespace.
        name: its name.
        init_containers: which of its own the job tells something; it can add none.
    """

    kind: str
    name: str
    init_containers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a job's own status tells of its replicas, where its kind does that at all.

    Attributes:
        pods: the name of the replica that each pod is, by the pods' names; also of pods that are gone.
        ends: failures of containers, one a replica; also of pods that are gone.
        restarts: how often replicas were made again.
    """

    pods: Mapping[str, str] = field(default_factory=dict)
    ends: tuple[Termination, ...] = ()
    restarts: int = 0


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """One attempt's object, ready to submit; where its outputs are; and the hash of what was asked for.

    The hash leaves out all metadata, the attempt and credentials: it is the same for every attempt of an unchanged job.

    Attributes:
        changes: sentences about what was changed of what the user wrote, each with the role and the container.
        secret: the Secret that the job's containers refer to and that has to be made with it, to be owned by it; None
            if there is none. Nobody may see it but the API server.
    """

    manifest: Manifest
    outputs: ResolvedOutputs
    spec_hash: str
    changes: tuple[str, ...] = ()
    secret: Manifest | None = field(default=None, repr=False)


def nothing_told(_job: Mapping[str, Any]) -> Told:
    """Return what a kind tells whose status says nothing of single replicas."""
    return Told()


class Kind(Protocol):
    """One CRD."""

    @property
    def KIND(self) -> str:  # noqa: N802 - a module has it as a constant
        """The kind's name, as objects and references have it."""

    @property
    def API_VERSION(self) -> str:  # noqa: N802 - as above
        """Group and version."""

    @property
    def PLURAL(self) -> str:  # noqa: N802 - as above
        """The resource's name in paths."""

    @property
    def OPERATOR(self) -> str:  # noqa: N802 - as above
        """What has to be installed for a cluster to serve the kind, as a person would look for it."""

    @property
    def CONTAINER(self) -> str:  # noqa: N802 - as above
        """The name of the container that trains; where a pod has none of this name, its first one does."""

    @property
    def HAS_FIXED_POD_NAMES(self) -> bool:  # noqa: N802 - as above
        """Whether a replica's pod has the replica's name."""

    @property
    def HAS_LABELLED_PODS(self) -> bool:  # noqa: N802 - as above
        """Whether a job's pods have our labels, by every version of the operator."""

    @property
    def STOP_RUNNING_PODS(self) -> Manifest | None:  # noqa: N802 - as above
        """The patch that makes the operator stop what still runs of an ended job; None: it does so by itself."""

    @property
    def DELETION(self) -> str:  # noqa: N802 - as above
        """How a job is deleted: `Foreground`, its pods first, wherever the operator stands that."""

    def in_words_of(self, manifest: Manifest, fields: frozenset[str], /) -> Manifest:
        """Return the object, or a change of one, in the words of a server that knows these fields of the kind's spec.

        Raises:
            InvalidSpec: it has no word for something; the text names the field.
        """

    def render(
        self,
        job: TrainingJob,
        *,
        owner: Owner,
        attempt: int,
        exact_name: bool = False,
        installation: Installation | None = None,
    ) -> Rendered:
        """Return the object of one attempt.

        Raises:
            InvalidSpec: the kind cannot say a field, or the operator would refuse it; the text names the field.
        """

    def runtime_of(self, manifest: Mapping[str, Any], /) -> Runtime | None:
        """Return the runtime that an object names; None if it needs none, or one that nobody here knows."""

    def read_status(self, job: Mapping[str, Any], /) -> JobStatus:
        """Derive the job's status from its object."""

    def running_since(self, job: Mapping[str, Any], /) -> datetime | None:
        """Return when the job's present run began, as its object tells; None if it has not, or does not tell."""

    def due_at(self, job: Mapping[str, Any], /) -> datetime | None:
        """Return when the job's own deadline is over; None if it has none, has not started or has ended."""

    def replicas(self, manifest: Mapping[str, Any], /) -> tuple[Replica, ...]:
        """Return all replicas, rank 0 first."""

    def is_restarted(self, job: Mapping[str, Any], replica: str, /) -> bool:
        """Whether a replica of this name whose container has failed may run again."""

    def stops_by_itself(self, job: Mapping[str, Any], /) -> bool:
        """Whether the operator stops what still runs of the job when it ends."""

    def suspended(self, *, suspend: bool) -> Manifest:
        """Return the patch that takes a job's pods away, or gives them back."""

    def expiring(self, job: Mapping[str, Any], /) -> Manifest | None:
        """Return the patch that limits an ended job's life; None if it is limited, or cannot be."""

    def expires(self, job: Mapping[str, Any], /) -> bool:
        """Whether its operator deletes the job by itself some time after its end."""

    def is_older(self, job: Mapping[str, Any], /) -> bool:
        """Whether the object is in the words of an operator so old that it labels pods otherwise."""

    def pod_selector(self, name: str = "", /, *, older: bool = False) -> str:
        """Return the label selector of a job's pods, or of all jobs'; as such an older operator labels them."""

    def owner_of(self, pod: Mapping[str, Any], /) -> PodOwner:
        """Return which job the pod belongs to."""

    def replica_of(self, pod: Mapping[str, Any], /) -> str:
        """Return the name of the replica that the pod is, as far as it says; see `kinds.replica_of`."""

    def replica_named(self, pod: str, /) -> str:
        """Return the name of the replica that a pod of this name would be, as far as its name says."""

    def told(self, job: Mapping[str, Any], /) -> Told:
        """Return what the object's status tells of its replicas: more than pods do, or what they did when gone."""

    def controllers(self, name: str, /) -> Sequence[tuple[str, str]]:
        """Return kind and name of each object between a job and its pods: their events say why there are no pods."""

    def rank0_template(self, manifest: Mapping[str, Any], /) -> Mapping[str, Any]:
        """Return the template of the pod that is rank 0, as far as the job's object tells of it."""

    def priority(self, manifest: Mapping[str, Any], /) -> str:
        """Return the class or the number that says which jobs go first, "" if the object tells none."""

    def templates(self, manifest: Mapping[str, Any], /) -> Iterable[Mapping[str, Any]]:
        """Return the templates of all roles, as far as the job's object tells of them."""
