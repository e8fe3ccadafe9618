"""Read a job's current state once, without changing the job or waiting for it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ptjob_provider.core import diagnosis as diagnoses
from ptjob_provider.core import history, kinds
from ptjob_provider.core.errors import ClusterUnavailable, JobNotFound, OutputsNotVerified
from ptjob_provider.core.history import peak_usage
from ptjob_provider.core.identity import REPORT_ANNOTATION, RESUMED_ANNOTATION, JobRef, annotation_of, owner_in
from ptjob_provider.core.outputs.contract import problems, read_report
from ptjob_provider.core.outputs.result import build_result
from ptjob_provider.core.run.lookup import find_job
from ptjob_provider.core.run.submit import Submission, inspect_outputs
from ptjob_provider.core.status import JobPhase, JobStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.backend import Backend, Observation
    from ptjob_provider.core.diagnosis import Diagnosis
    from ptjob_provider.core.history import PodHistory
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.outputs.contract import OutputReport

_ARENA_USER = "arena.kubeflow.org/username"
_PATIENCE = 60


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Complete state of a job at one moment.

    Attributes:
        job: the object, as the server has it.
        submission: the job, its replicas and its declared outputs.
        ranks: the replicas with their ranks; None for a replica without one.
        status: the job's status.
        priority: a priority class or a number; "" if unset.
        pods: its current pods; the pods of an ended job may be gone.
        record: the recorded pod history.
        waiting: the reason why it does not run yet; "" if it runs.
        diagnosis: the cause of its failure; None if it has not failed.
        report: facts about its outputs; None unless it succeeded and declares outputs.
        unverified: what prevented the inspection of its outputs; "" for nothing.
        used: measured usage of its replicas.
        conditions: the object's conditions, unchanged.
        now: the time of the snapshot.
    """

    job: Manifest
    submission: Submission
    ranks: Mapping[str, int | None]
    status: JobStatus
    priority: str
    pods: Sequence[Manifest]
    record: PodHistory
    waiting: str
    diagnosis: Diagnosis | None
    report: OutputReport | None
    unverified: str
    used: Mapping[str, peak_usage.PeakUsage]
    conditions: Sequence[Mapping[str, Any]]
    now: datetime

    def to_dict(self) -> dict[str, Any]:
        """Return the job's result as in Airflow's XCom, with owner, replicas, conditions and the reason for waiting."""
        result = build_result(
            self.submission,
            status=self.status,
            history=self.record,
            report=self.report,
            diagnosis=self.diagnosis,
            now=self.now,
            used=self.used,
            resumed=annotation_of(self.job, RESUMED_ANNOTATION),
        )
        replicas = [{"name": name, "rank": rank} for name, rank in self.ranks.items()]
        status = self.job.get("status") or {}
        return {
            **result,
            "owner": owner_of(self.job),
            "priority": self.priority or None,
            "replicas": replicas,
            "replica_statuses": _replica_statuses(status),
            "conditions": [dict(condition) for condition in self.conditions],
            "trainer_status": status.get("trainerStatus") or None,
            "waiting": self.waiting,
        }


async def look(
    backend: Backend,
    namespace: str,
    name: str,
    *,
    kind: str | None = None,
    preferred: str | None = None,
    inspect: bool = True,
    now: datetime | None = None,
) -> Snapshot:
    """Return the job's current state.

    Args:
        backend: the back-end.
        namespace: the job's namespace.
        name: the job's name.
        kind: the job's kind; None: the first kind that has a job of this name.
        preferred: the kind to search first if `kind` is None.
        inspect: inspect the job's outputs if no report is recorded; in a cluster this starts a pod.
        now: the time of the snapshot; None: the current time.

    Raises:
        JobNotFound: no job has that name.
    """
    now = now or datetime.now(UTC)
    job = await find_job(backend, namespace, name, kind=kind, preferred=preferred)
    observation = await observed(backend, JobRef.of(job))
    if observation.job is None:
        raise JobNotFound(f"{namespace}/{name}: it was deleted just now", code=404, reason="NotFound")
    submission = Submission.of(observation.job)
    ranks = {**submission.ranks, **dict.fromkeys(kinds.unranked(observation.job).values())}
    before, replicas = history.stored_in(observation.job), len(ranks)
    record = kinds.observe(before, observation.job, observation.pods, observation.events, now=now, replicas=replicas)
    status = kinds.observed_status(observation.job, record)
    waiting = diagnoses.waiting_reason(record, status, replicas=replicas, rank0=submission.rank0)
    is_undiagnosed = status.phase is JobPhase.FAILED and diagnoses.Diagnosis.stored_in(observation.job) is None
    if waiting or is_undiagnosed:
        reasons = await backend.reasons(submission.ref)
        record = kinds.observe(
            record, observation.job, observation.pods, [*observation.events, *reasons], now=now, replicas=replicas
        )
    if waiting:
        unread = [str(event["message"]) for event in reasons if event.get("reason") == "NotApplied"]
        waiting = "; ".join(
            [diagnoses.waiting_reason(record, status, replicas=replicas, rank0=submission.rank0), *unread]
        )
    report, unverified = read_report(annotation_of(observation.job, REPORT_ANNOTATION), submission.outputs), ""
    if report is None and inspect and status.phase is JobPhase.SUCCEEDED:
        report, unverified = await _inspect(backend, submission)
    return Snapshot(
        job=observation.job,
        submission=submission,
        ranks=ranks,
        status=status,
        priority=kinds.kind_of(observation.job).priority(observation.job) or _priority_class(observation.pods),
        pods=observation.pods,
        record=record,
        waiting=waiting,
        diagnosis=_diagnose(observation, submission, status, record, report),
        report=report,
        unverified=unverified,
        used=peak_usage.together(peak_usage.stored_in(observation.job), await backend.usage(JobRef.of(job))),
        conditions=(observation.job.get("status") or {}).get("conditions") or (),
        now=now,
    )


def owner_of(job: Mapping[str, Any]) -> dict[str, str]:
    """Return the ids that a job was created for, such as Airflow's dag_id and try_number; {} if it has none.

    For a job created by Arena, return its user.
    """
    owner = owner_in(job)
    if owner.ids:
        return {**owner.ids, **owner.labels}
    person = annotation_of(job, _ARENA_USER)
    return {"arena": person} if person else {}


def _replica_statuses(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the replica counts by role; a TrainJob has them as a list, other kinds as a map."""
    listed = {str(each["name"]): each for each in status.get("jobsStatus") or ()}
    return {**listed, **(status.get("replicaStatuses") or {})}


def _priority_class(pods: Sequence[Manifest]) -> str:
    """Return the priority class of the pods, which a runtime or the cluster's default may have set."""
    return next((name for pod in pods if (name := (pod.get("spec") or {}).get("priorityClassName"))), "")


async def observed(backend: Backend, ref: JobRef) -> Observation:
    """Return the job and its pods.

    Raises:
        ClusterUnavailable: the server did not list them in time; a watch waits without a limit for a server's return.
    """
    try:
        async with asyncio.timeout(_PATIENCE), aclosing(backend.watch(ref)) as watch:
            return await anext(watch)
    except TimeoutError:
        raise ClusterUnavailable(f"{ref}: its pods could not be read within {_PATIENCE} s (see ptjob doctor)") from None


async def _inspect(backend: Backend, submission: Submission) -> tuple[OutputReport | None, str]:
    """Return the report about the outputs, or None and the reason why they could not be inspected."""
    try:
        return await inspect_outputs(backend, submission), ""
    except OutputsNotVerified as error:
        return None, str(error)


def _diagnose(
    observation: Observation, submission: Submission, status: JobStatus, record: PodHistory, report: OutputReport | None
) -> Diagnosis | None:
    job = observation.job or {}
    if status.phase is JobPhase.FAILED:
        diagnosis = diagnoses.Diagnosis.stored_in(job) or diagnoses.diagnose(record, status, ranks=submission.ranks)
        left = {kinds.replica_of(job)(pod) for pod in observation.pods}
        has_log = diagnosis.replica in left if diagnosis.replica else bool(left)
        return diagnosis if has_log else diagnosis.without_log("its pod")
    defects = problems(report, submission.outputs) if report else ()
    return diagnoses.outputs_failed(defects, replica=submission.rank0) if defects else None
