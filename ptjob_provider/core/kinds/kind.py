"""Interface of a job kind, and the values that it returns; `kinds.KINDS` lists the kinds."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, is_dataclass
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kinds.pod_template import count, count_gpus
from ptjob_provider.core.spec import Installation
from ptjob_provider.core.spec.parsers import set_fields

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from ptjob_provider.core.history import Termination
    from ptjob_provider.core.identity import Manifest, Owner
    from ptjob_provider.core.outputs.contract import ResolvedOutputs
    from ptjob_provider.core.spec import TrainingJob
    from ptjob_provider.core.status import JobStatus

DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, kw_only=True)
class Replica:
    """One replica of a job.

    Attributes:
        name: stays the same when the pod is recreated; the pod's own name if that does, too.
        role: `master` or `worker`, as in the operator's labels.
        index: within the role.
        rank: of the pod within the job (a node's rank, where a pod has several processes).
        gpus: requested GPUs.
        template: of its pod, as far as the job's object defines it.
    """

    name: str
    role: str
    index: int
    rank: int
    gpus: int
    template: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class PodOwner:
    """Job to which a pod belongs according to itself; "" if unknown.

    Attributes:
        name: of the job.
        uid: of the job.
    """

    name: str = ""
    uid: str = ""


def numbered(name: str, roles: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[Replica]:
    """Yield the replicas of a job from its roles and their specifications, rank 0's first."""
    ranks = itertools.count()
    for role, spec in roles:
        template = spec["template"]
        gpus = count_gpus(template)
        for index in range(count(spec)):
            where = f"{name}-{role}-{index}"
            yield Replica(name=where, role=role, index=index, rank=next(ranks), gpus=gpus, template=template)


def owner_in(pod: Mapping[str, Any], kind: str) -> PodOwner:
    """Return the job of this kind among the pod's owners."""
    owners = pod["metadata"].get("ownerReferences") or ()
    owner: Mapping[str, Any] = next((each for each in owners if each.get("kind") == kind), {})
    return PodOwner(name=str(owner.get("name") or ""), uid=str(owner.get("uid") or ""))


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """Runtime that a job refers to: another object, which must exist first.

    Attributes:
        kind: `ClusterTrainingRuntime`, or `TrainingRuntime` for one of the job's namespace.
        name: its name.
        init_containers: the runtime's init containers that the job configures; it can add none.
    """

    kind: str
    name: str
    init_containers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Reported:
    """Replica states reported by a job's own status, if its kind reports any.

    Attributes:
        pods: pod name → replica name, including deleted pods.
        ends: failures of containers, one per replica, including those of deleted pods.
        restarts: number of recreated replicas.
    """

    pods: Mapping[str, str] = field(default_factory=dict)
    ends: tuple[Termination, ...] = ()
    restarts: int = 0


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt at a job, with an object of its own.

    Attributes:
        job: the specification.
        owner: its owner.
        number: 1 for the first.
        exact_name: use the job's name unchanged, without a hash of owner and attempt.
        installation: additions to every job.
    """

    job: TrainingJob
    owner: Owner
    number: int
    exact_name: bool = False
    installation: Installation = field(default_factory=Installation)


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """One attempt's object, ready to submit, with its outputs and the hash of the specification.

    The hash leaves out all metadata, the attempt and credentials: it is the same for every attempt of an unchanged job.

    Attributes:
        changes: sentences about changes to the user's input, each with the role and the container.
        secret: the Secret that the job's containers refer to, to be created with the job as its owner; None if there is
            none. Secret to all but the API server.
    """

    manifest: Manifest
    outputs: ResolvedOutputs
    spec_hash: str
    changes: tuple[str, ...] = ()
    secret: Manifest | None = field(default=None, repr=False)


class Kind(ABC):
    """One kind of job: all differences between CRDs that are used outside of `kinds`, with their defaults.

    The methods are pure functions: a job's object and its pods come in as the API server wrote them.

    Attributes:
        KIND: its name, as in objects and references.
        API_VERSION: group and version.
        PLURAL: the resource's name in paths.
        OPERATOR: the operator that serves the kind, as a person would search for it.
        CONTAINER: the name of the training container; without a container of this name, the pod's first one trains.
        HAS_FIXED_POD_NAMES: a replica's pod has the replica's name.
        HAS_LABELLED_PODS: every version of the operator puts our labels on a job's pods.
        POD_LABEL: the operator's label of a job's pods, with the job's name.
        OLD_POD_LABEL: the same of an older operator, see `is_older`; "" where there is none.
        STOP_RUNNING_PODS: the patch that makes the operator stop the remaining pods of an ended job; None if it always
            does.
        DELETION: the propagation policy of a deletion: `Foreground`, its pods first, if the operator supports it.
    """

    KIND: str
    API_VERSION: str
    PLURAL: str
    OPERATOR: str
    CONTAINER: str
    HAS_FIXED_POD_NAMES = False
    HAS_LABELLED_PODS = True
    POD_LABEL: str
    OLD_POD_LABEL = ""
    STOP_RUNNING_PODS: Manifest | None = None
    DELETION = "Foreground"

    def converted_for(self, manifest: Manifest, fields: frozenset[str], /) -> Manifest:  # noqa: ARG002 - one version
        """Return the object, or a patch, converted for a server with these fields in the kind's spec.

        Raises:
            InvalidSpec: a part has no equivalent; the text names the field.
        """
        return manifest

    def render(
        self,
        job: TrainingJob,
        *,
        owner: Owner,
        attempt: int,
        exact_name: bool = False,
        installation: Installation | None = None,
    ) -> Rendered:
        """Return the object of one attempt; the arguments are the fields of `Attempt`.

        Raises:
            InvalidSpec: the kind does not support a field, or the operator would refuse it; the text names the field.
        """
        self.check_fields(set_fields(job))
        installation = installation or Installation()
        return self.rendered(
            Attempt(job=job, owner=owner, number=attempt, exact_name=exact_name, installation=installation)
        )

    @abstractmethod
    def rendered(self, attempt: Attempt, /) -> Rendered:
        """Return the object of one attempt, see `render`."""

    @abstractmethod
    def lacking(self, given: Mapping[str, Any], /) -> Mapping[str, str]:
        """Return which of a job's set fields the kind has no place for, and what to do instead."""

    def check_fields(self, given: Mapping[str, Any], *, but: Collection[str] = ()) -> None:
        """Check that the kind has a place for a job's set fields.

        Args:
            given: the fields.
            but: those whose value is not known yet: they are not refused.

        Raises:
            InvalidSpec: it has none for one; the text names it.
        """
        for name, why in self.lacking(given).items():
            if name not in but:
                value = "set" if is_dataclass(given[name]) else given[name]
                raise InvalidSpec.of(name, value, f"a {self.KIND} has no place for it: {why}")

    def runtime_of(self, _manifest: Mapping[str, Any], /) -> Runtime | None:
        """Return the runtime that an object names; None if it needs none, or an unknown kind of one."""
        return None

    @abstractmethod
    def read_status(self, job: Mapping[str, Any], /) -> JobStatus:
        """Derive the job's status from its object."""

    def running_since(self, _job: Mapping[str, Any], /) -> datetime | None:
        """Return the start of the job's current run; None if it has not started or does not report it."""
        return None

    def due_at(self, _job: Mapping[str, Any], /) -> datetime | None:
        """Return the end of the job's own deadline, if its operator may miss it; None if there is none."""
        return None

    @abstractmethod
    def replicas(self, manifest: Mapping[str, Any], /) -> tuple[Replica, ...]:
        """Return all replicas, rank 0 first."""

    def is_restarted(self, _job: Mapping[str, Any], _replica: str, /) -> bool:
        """Return whether a failed replica of this name may run again; True where no object of ours shows it."""
        return True

    def stops_by_itself(self, _job: Mapping[str, Any], /) -> bool:
        """Return whether the operator stops the remaining pods when the job ends."""
        return True

    @abstractmethod
    def suspended(self, *, suspend: bool) -> Manifest:
        """Return the patch that suspends or resumes a job."""

    def expiring(self, _job: Mapping[str, Any], /) -> Manifest | None:
        """Return the patch that sets an ended job's TTL; None if it has one, or cannot have one."""
        return None

    def expires(self, _job: Mapping[str, Any], /) -> bool:
        """Return whether its operator deletes the job some time after its end."""
        return False

    def is_older(self, _job: Mapping[str, Any], /) -> bool:
        """Return whether the object is of an older operator with other pod labels."""
        return False

    def pod_selector(self, name: str = "", /, *, older: bool = False) -> str:
        """Return the label selector of a job's pods, or of all jobs', optionally with an older operator's label."""
        label = (older and self.OLD_POD_LABEL) or self.POD_LABEL
        return f"{label}={name}" if name else label

    def owner_of(self, pod: Mapping[str, Any], /) -> PodOwner:
        """Return the job that the pod belongs to."""
        return owner_in(pod, self.KIND)

    def replica_of(self, pod: Mapping[str, Any], /) -> str:
        """Return the pod's replica name, as far as it shows; see `kinds.replica_of`."""
        return str(pod["metadata"]["name"])

    def replica_named(self, pod: str, /) -> str:
        """Return the replica name for a pod name."""
        return pod

    def reported(self, _job: Mapping[str, Any], /) -> Reported:
        """Return the replica states in the object's status, which outlive the pods; most kinds report none."""
        return Reported()

    def controllers(self, _name: str, /) -> Sequence[tuple[str, str]]:
        """Return kind and name of each object between a job and its pods: their events explain missing pods."""
        return ()

    @abstractmethod
    def templates(self, manifest: Mapping[str, Any], /) -> Iterable[Mapping[str, Any]]:
        """Return the templates of all roles, rank 0's first, as far as the job's object defines them."""

    def rank0_template(self, manifest: Mapping[str, Any], /) -> Mapping[str, Any]:
        """Return the template of rank 0's pod, as far as the job's object defines it."""
        return next(iter(self.templates(manifest)))

    @abstractmethod
    def priority(self, manifest: Mapping[str, Any], /) -> str:
        """Return the priority class or number; "" if the object has none."""
