"""Build the result of a job, one JSON-safe value: for XCom, the outputs of a pipeline's step, and `ptjob get`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from ptjob_provider.core.diagnosis import failed_replicas
from ptjob_provider.core.history import peak_usage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from ptjob_provider.core.diagnosis import Diagnosis
    from ptjob_provider.core.history import PodHistory
    from ptjob_provider.core.outputs.contract import OutputFacts, OutputReport, ResolvedOutput
    from ptjob_provider.core.run.submit import Submission
    from ptjob_provider.core.status import JobStatus


class JobResult(TypedDict):
    """The result as a program reads it.

    @task
    def publish(result: JobResult) -> str:
        if result["model"] is None:
            raise ValueError("the training declares no model")
        return result["model"]["sha256"]

    publish(train.output)
    """

    job: dict[str, str]
    """The job: {kind, namespace, name, uid}."""
    attempt: int
    """Number of the attempt, from 1."""
    phase: str
    """`Succeeded`, `Failed`, `Running`, `Pending` or `Suspended`."""
    start: str | None
    """When it started: RFC 3339."""
    end: str | None
    """When it ended: RFC 3339."""
    queue_seconds: float
    """Seconds from the job's creation until a replica's first container ran, or the job's end if none ever did."""
    run_seconds: float
    """Seconds from the end of queue_seconds until the job's end."""
    restarts: int
    """Restarts of containers."""
    gpu_seconds: float
    """Requested GPUs times run_seconds; an elastic job counts with its last number of GPUs."""
    gpu_seconds_lost: float
    """Part of gpu_seconds that was used by containers that had to be restarted."""
    usage: dict[str, Any] | None
    """Measured peaks: {replicas: {name: peaks}, left_out}; null without measurements."""
    rank0: str
    """Pod of rank 0."""
    git_revision: str | None
    """Commit that was fetched for `code`; null if pods have fetched different ones."""
    code_revision: dict[str, Any] | None
    """Revision of the folder that `code` names: {digest, commit, dirty}."""
    model: dict[str, Any] | None
    """The model: {uri, claim, path, container_path, bytes, sha256, in_doubt}; null if there is none."""
    tfevents: dict[str, Any] | None
    """The events: {uri, claim, path, container_path, last_step, scalars, in_doubt}; null if there are none. In a
    pipeline's step also `curves`."""
    tensorboard_url: str | None
    """Address of the TensorBoard beside the job."""
    diagnosis: dict[str, Any] | None
    """Why the job did not succeed; see below."""
    preemptions: list[dict[str, Any]]
    """[{node, cause, seconds_lost}] of the task's attempts that the platform ended, oldest first; `seconds_lost` is how
    long the attempt had run, most of which a checkpoint may save."""
    resumed: str | None
    """Sentence about the step at which a later attempt went on, and how many it repeats; null if its log has none."""
    failed_replicas: list[dict[str, Any]]
    """[{replica, rank, exit_code, cause, message}]; a job that succeeded may have some."""
    return_value: NotRequired[Any]
    """Return value of the function, if the job ran one."""


def build_result(
    submission: Submission,
    *,
    status: JobStatus,
    history: PodHistory,
    report: OutputReport | None,
    diagnosis: Diagnosis | None,
    now: datetime,
    used: Mapping[str, peak_usage.PeakUsage] | None = None,
    resumed: str = "",
) -> dict[str, Any]:
    """Return a job's result as of `now` as plain JSON values, see `JobResult`; instants are RFC 3339 texts.

    Args:
        submission: the job, its replicas and its declared outputs.
        status: its status.
        history: the history of its pods.
        report: facts about its outputs; None if they were not inspected.
        diagnosis: why it did not succeed; None if it did.
        now: counts as the end of a job that has not ended.
        used: measured usage of its replicas.
        resumed: where it went on, see `resumed.sentence`.
    """
    fields, rank0, outputs = status.to_dict(), submission.rank0, submission.outputs
    return {
        "job": submission.ref.to_dict(),
        "attempt": submission.attempt,
        "phase": status.phase.value,
        "start": fields["started_at"],
        "end": fields["finished_at"],
        **_times(submission, status, history, now),
        "usage": peak_usage.shown(used or {}, rank0=rank0),
        "rank0": rank0,
        "git_revision": history.revisions[0] if len(history.revisions) == 1 else None,
        "code_revision": dict(submission.code_revision) if submission.code_revision else None,
        "model": _entry(outputs.model, report.model if report else None, ("bytes", "sha256")),
        "tfevents": _entry(outputs.tfevents, report.tfevents if report else None, ("last_step", "scalars")),
        "tensorboard_url": submission.tensorboard_url or None,
        "diagnosis": diagnosis.to_dict() if diagnosis else None,
        "preemptions": [*submission.preemptions, *preemption(history, diagnosis, ended_at=status.finished_at or now)],
        "resumed": resumed or None,
        "failed_replicas": failed_replicas(history, ranks=submission.ranks),
        **({"return_value": json.loads(history.returned)} if history.returned else {}),
    }


def preemption(history: PodHistory, why: Diagnosis | None, *, ended_at: datetime | None) -> list[dict[str, Any]]:
    """Return [{node, cause, seconds_lost}] of a job that the platform ended; [] for any other end."""
    if why is None or not why.by_platform:
        return []
    began_at = history.first_running_at
    seconds = (ended_at - began_at).total_seconds() if ended_at and began_at else 0.0
    node = history.node_of(why.replica) or None
    return [{"node": node, "cause": why.cause.value, "seconds_lost": max(0.0, seconds)}]


def _times(submission: Submission, status: JobStatus, history: PodHistory, now: datetime) -> dict[str, float]:
    """Return the fields of a job's result about seconds and restarts."""
    gpus, finished_at = submission.gpus_of, status.finished_at or now
    queued_until = history.first_running_at or finished_at
    run_seconds = max(0.0, (finished_at - queued_until).total_seconds())
    lost = history.lost_seconds().items()
    return {
        "queue_seconds": max(0.0, (queued_until - (status.created_at or finished_at)).total_seconds()),
        "run_seconds": run_seconds,
        "restarts": history.restarts,
        "gpu_seconds": sum(gpus.values()) * run_seconds,
        "gpu_seconds_lost": sum(seconds * gpus.get(replica, 0) for replica, seconds in lost),
    }


def _entry(output: ResolvedOutput | None, facts: OutputFacts | None, wanted: tuple[str, ...]) -> dict[str, Any] | None:
    if output is None or facts is None or not facts.exists:
        return None
    fields = facts.to_dict()
    curves = {"curves": fields["curves"]} if fields["curves"] else {}
    return {**output.to_dict(), **{name: fields[name] for name in (*wanted, "in_doubt")}, **curves}
