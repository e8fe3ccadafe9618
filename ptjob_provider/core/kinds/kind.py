"""Interface of a kind of job, and the values that its methods take and return; `kinds.KINDS` lists the kinds."""

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
        name: stays the same when the pod is recreated; it is the pod's own name if that stays the same, too.
        role: `master` or `worker`, as in the operator's labels.
        index: number of the pod within the role, from 0.
        rank: the pod's rank within the job; if a pod has several processes, it is the node's rank.
        gpus: requested GPUs.
        template: the pod's template, as far as the job's object defines it.
    """

    name: str
    role: str
    index: int
    rank: int
    gpus: int
    template: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class PodOwner:
    """Job to which a pod belongs, by the pod's own metadata; "" if unknown.

    Attributes:
        name: the job's name.
        uid: the job's uid.
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
            replica = f"{name}-{role}-{index}"
            yield Replica(name=replica, role=role, index=index, rank=next(ranks), gpus=gpus, template=template)


def owner_in(pod: Mapping[str, Any], kind: str) -> PodOwner:
    """Return the job of this kind among the pod's owner references."""
    owners = pod["metadata"].get("ownerReferences") or ()
    owner: Mapping[str, Any] = next((each for each in owners if each.get("kind") == kind), {})
    return PodOwner(name=str(owner.get("name") or ""), uid=str(owner.get("uid") or ""))


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """Runtime that a job refers to: an object of its own, which must exist before the job.

    Attributes:
        kind: `ClusterTrainingRuntime`, or `TrainingRuntime` for one of the job's namespace.
        name: the runtime's name.
        init_containers: names of the runtime's init containers that the job configures; a job cannot add any.
    """

    kind: str
    name: str
    init_containers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Reported:
    """Replica states reported by a job's own status, if its kind reports any.

    Attributes:
        pods: pod name → replica name, including deleted pods.
        ends: failed containers, one per replica, including those of deleted pods.
        restarts: number of recreated replicas.
    """

    pods: Mapping[str, str] = field(default_factory=dict)
    ends: tuple[Termination, ...] = ()
    restarts: int = 0


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt at a job; each attempt has its own object.

    Attributes:
        job: the specification.
        owner: the job's owner.
        number: the attempt's number, from 1.
        exact_name: use the job's name unchanged, without a hash of owner and attempt.
        installation: settings that apply to every job.
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
            none. Only the API server may see its content.
    """

    manifest: Manifest
    outputs: ResolvedOutputs
    spec_hash: str
    changes: tuple[str, ...] = ()
    secret: Manifest | None = field(default=None, repr=False)


class Kind(ABC):
    """Interface of one kind of job: everything in which CRDs differ for code outside of `kinds`, with defaults.

    The methods are pure functions of a job's object and its pods, as the API server returns them.

    Attributes:
        KIND: its name, as in objects and references.
        API_VERSION: group and version.
        PLURAL: the resource's name in paths.
        OPERATOR: the operator that runs the kind's jobs, by the name that people know.
        CONTAINER: the name of the training container; without a container of this name, the pod's first one trains.
        HAS_FIXED_POD_NAMES: True if a replica's pod has the replica's name.
        HAS_LABELLED_PODS: True if every version of the operator puts this package's labels on a job's pods.
        POD_LABEL: key of the operator's label on a job's pods; its value is the job's name.
        OLD_POD_LABEL: key of that label with an older operator, see `is_older`; "" if there is none.
        STOP_RUNNING_PODS: the patch that makes the operator stop the remaining pods of an ended job; None if it
            always stops them.
        DELETION: the propagation policy of a deletion: `Foreground`, which deletes the pods first, if the operator
            supports it.
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
        """Return the set fields that the kind does not support: name → what to do instead."""

    def check_fields(self, given: Mapping[str, Any], *, but: Collection[str] = ()) -> None:
        """Check that the kind supports a job's set fields.

        Args:
            given: the set fields.
            but: names of fields whose value is not known yet; they are not refused.

        Raises:
            InvalidSpec: the kind does not support a field; the text names it.
        """
        for name, why in self.lacking(given).items():
            if name not in but:
                value = "set" if is_dataclass(given[name]) else given[name]
                raise InvalidSpec.of(name, value, f"a {self.KIND} has no place for it: {why}")

    def runtime_of(self, _manifest: Mapping[str, Any], /) -> Runtime | None:
        """Return the runtime that an object refers to; None if it needs none, or if the runtime's kind is unknown."""
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
        """Return whether the operator may restart the failed replica; True if the object does not show it."""
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
        """Return whether the operator deletes the job's object some time after its end."""
        return False

    def is_older(self, _job: Mapping[str, Any], /) -> bool:
        """Return whether the object belongs to an older operator, which labels pods differently."""
        return False

    def pod_selector(self, name: str = "", /, *, older: bool = False) -> str:
        """Return the label selector of one job's pods or, without a name, of all jobs' pods.

        Args:
            name: the job's name.
            older: select by the older operator's label, if there is one.
        """
        label = (older and self.OLD_POD_LABEL) or self.POD_LABEL
        return f"{label}={name}" if name else label

    def owner_of(self, pod: Mapping[str, Any], /) -> PodOwner:
        """Return the job that the pod belongs to."""
        return owner_in(pod, self.KIND)

    def replica_of(self, pod: Mapping[str, Any], /) -> str:
        """Return the name of the pod's replica, as far as the pod shows it; see `kinds.replica_of`."""
        return str(pod["metadata"]["name"])

    def replica_named(self, pod: str, /) -> str:
        """Return the name of the replica whose pod has this name."""
        return pod

    def reported(self, _job: Mapping[str, Any], /) -> Reported:
        """Return the replica states in the object's status, which outlive the pods; most kinds report none."""
        return Reported()

    def controllers(self, _name: str, /) -> Sequence[tuple[str, str]]:
        """Return kind and name of each object between a job and its pods; their events explain missing pods."""
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
