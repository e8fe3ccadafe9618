"""Job kinds: one per CRD. Functions here dispatch to the kind of a job's object."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ptjob_provider.core import history
from ptjob_provider.core.containment import contained
from ptjob_provider.core.errors import InvalidSpec, one_of
from ptjob_provider.core.kinds import pod_template, queue
from ptjob_provider.core.kinds.kind import DEFAULT_NAMESPACE, Kind, Rendered, Replica
from ptjob_provider.core.kinds.pytorchjob import PyTorchJob
from ptjob_provider.core.kinds.pytorchtrainingjob import PyTorchTrainingJob
from ptjob_provider.core.kinds.trainjob import TrainJob
from ptjob_provider.core.spec.parsers import MAX_PODS
from ptjob_provider.core.status import JobPhase, JobStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from ptjob_provider.core.history import PodHistory
    from ptjob_provider.core.identity import JobRef, Manifest
    from ptjob_provider.core.spec import TrainingJob

PYTORCHJOB, TRAINJOB, PYTORCHTRAININGJOB = PyTorchJob(), TrainJob(), PyTorchTrainingJob()

KINDS: Mapping[str, Kind] = {each.KIND: each for each in (PYTORCHJOB, TRAINJOB, PYTORCHTRAININGJOB)}
"""Known kinds by name."""

DEFAULT: Kind = PYTORCHJOB
"""Kind of a job that names none."""


def named(kind: str) -> Kind:
    """Return the kind of this name.

    Raises:
        InvalidSpec: the kind is unknown.
    """
    if kind not in KINDS:
        raise InvalidSpec.of("kind", kind, one_of(KINDS))
    return KINDS[kind]


def kind_of(job: Mapping[str, Any]) -> Kind:
    """Return the kind of a job's object; the default kind if it has none."""
    return named(job.get("kind") or DEFAULT.KIND)


def requested_kind(job: TrainingJob, *, preferred: str | None = None) -> Kind:
    """Return the kind for rendering a job when it is unknown which kinds the cluster serves."""
    return named(job.named_kind or preferred or DEFAULT.KIND)


def creatable(job: TrainingJob, *, preferred: str | None) -> tuple[str, ...]:
    """Return the names of the kinds as one of which a job is created, in the order in which they are tried."""
    return in_order(preferred) if job.named_kind is None else (job.named_kind,)


def in_order(preferred: str | None) -> tuple[str, ...]:
    """Return the names of all kinds in the order in which they are tried: the preferred one first."""
    return tuple(sorted(KINDS, key=lambda kind: kind != preferred))


@contained(lambda why, _: JobStatus(phase=JobPhase.RUNNING, message=f"its status cannot be read: {why}"))
def read_status(job: Mapping[str, Any]) -> JobStatus:
    """Derive the job's status from its object."""
    spec = job.get("spec") or {}
    limit = (spec.get("runPolicy") or spec).get("activeDeadlineSeconds")
    return replace(kind_of(job).read_status(job), time_limit=limit, is_taken_up=bool(job.get("status")))


def observed_status(job: Mapping[str, Any], record: PodHistory) -> JobStatus:
    """Derive the job's status from its object and from its observed pods.

    A TrainJob's object only shows whether its pods are ready: by the object alone, a running job is pending again while
    its pods end or one of them restarts. So a job counts as running if all its replicas have run since it was created
    or resumed; the object's reason and message about being pending are then dropped.
    """
    status = read_status(job)
    began = record.all_running_at
    if status.phase is not JobPhase.PENDING or began is None or (status.started_at and began < status.started_at):
        return status
    return replace(status, phase=JobPhase.RUNNING, reason="", message="")


@contained(lambda _why, _job: ())
def replicas(job: Mapping[str, Any]) -> tuple[Replica, ...]:
    """Return all replicas of the job, rank 0 first."""
    return kind_of(job).replicas(job)


@contained(lambda _why, _job: {})
def unranked(job: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the job's replicas without a rank: name for people → replica name."""
    return kind_of(job).unranked(job)


@contained(lambda _why, _job: ())
def controllers(job: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """Return kind and name of each object between the job and its pods."""
    return kind_of(job).controllers(job)


@contained(lambda _why, _job: False)
def stops_by_itself(job: Mapping[str, Any]) -> bool:
    """Return whether the operator stops the remaining pods when the job ends."""
    return kind_of(job).stops_by_itself(job)


@contained(lambda why, record, *_: history.with_notice(record, f"its pods cannot be read: {why}"))
def observe(
    record: PodHistory,
    job: Mapping[str, Any],
    pods: Sequence[Manifest],
    events: Sequence[Manifest],
    *,
    now: datetime,
    replicas: int = 0,
) -> PodHistory:
    """Return the job's pod history updated with these pods and events; see `history.observe`."""
    kind = kind_of(job)
    reported = kind.reported(job)
    observed = history.observe(
        record,
        pods=pods,
        events=events,
        now=now,
        container=kind.CONTAINER,
        replica_of=replica_of(job),
        replica_named=kind.replica_named,
        replicas=replicas,
    )
    ended = kind.read_status(job).finished_at or now
    if replicas >= MAX_PODS:
        observed = history.with_notice(
            observed, f"it asks for {MAX_PODS:,} pods or more; further ones are ignored here"
        )
    if doubt := kind.doubt(job):
        observed = history.with_notice(observed, doubt)
    if any(wait.kind is history.WaitKind.REFUSED for wait in observed.waiting):
        observed = queue.with_vain_waits(observed, kind.replicas(job))
    observed = replace(observed, first_running_at=observed.first_running_at or kind.running_since(job))
    return history.with_reported(observed, reported.ends, restarts=reported.restarts, at=min(ended, now))


def replica_of(job: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], str]:
    """Return a function from a pod to its replica's name: by the job's status if it lists the pod, else by the pod."""
    kind = kind_of(job)
    names = kind.reported(job).pods
    if not names:
        return kind.replica_of
    return lambda pod: names.get(pod["metadata"]["name"]) or kind.replica_of(pod)


def secrets_in_env(job: Mapping[str, Any]) -> dict[str, set[str] | None]:
    """Return the Secrets that variables of any container come from: name → keys, or None for all keys."""
    return pod_template.secrets_in_env(kind_of(job).templates(job))


def is_pod_of(pod: Mapping[str, Any], ref: JobRef) -> bool:
    """Return whether the pod belongs to this job: by its owner's uid or, if the pod has none, by the job's name.

    Pods of an earlier job of the same name may still exist.
    """
    owner = named(ref.kind).owner_of(pod)
    return owner.uid == ref.uid if owner.uid else bool(owner.name) and owner.name == ref.name
