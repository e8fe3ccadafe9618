"""Build the result of a finished job: one JSON-safe value, the source of XCom, pipeline outputs and `ptjob get`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from ptjob_provider.core.history import peak_usage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from ptjob_provider.core.diagnosis import Diagnosis
    from ptjob_provider.core.identity import JobRef
    from ptjob_provider.core.outputs.contract import OutputFacts, OutputReport, ResolvedOutput, ResolvedOutputs
    from ptjob_provider.core.status import JobStatus


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Waiting and running times of a job, in seconds.

    Attributes:
        queue_seconds: from the job's creation until a replica's first container ran; all of it if none ever did.
        run_seconds: from then until the job's end.
        restarts: number of container restarts.
        gpu_seconds: requested GPUs times run_seconds; for an elastic job, those of its last size.
        gpu_seconds_lost: the part used by containers that had to be restarted.
    """

    queue_seconds: float
    run_seconds: float
    restarts: int
    gpu_seconds: float
    gpu_seconds_lost: float


class ResultJob(TypedDict):
    """The job itself."""

    kind: str
    namespace: str
    name: str
    uid: str


class ResultModel(TypedDict):
    """The model, as it was verified."""

    uri: str
    claim: str
    path: str
    container_path: str
    bytes: int
    sha256: str


class ResultEvents(TypedDict):
    """The TensorBoard events, as they were verified."""

    uri: str
    claim: str
    path: str
    container_path: str
    last_step: int | None
    scalars: dict[str, float | str]
    curves: NotRequired[dict[str, list[list[float | str]]]]


class FailedReplica(TypedDict):
    """A replica that failed; a job that succeeded may have some."""

    replica: str
    rank: int | None
    exit_code: int | None
    cause: str
    message: str


class JobResult(TypedDict):
    """The result as a program reads it.

    @task
    def publish(result: JobResult) -> str:
        if result["model"] is None:
            raise ValueError("the training declares no model")
        return result["model"]["sha256"]

    publish(train.output)
    """

    job: ResultJob
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
    """Seconds from the job's creation until a replica's first container ran; all of them if none ever did."""
    run_seconds: float
    """Seconds from then until the job's end."""
    restarts: int
    """Restarts of containers."""
    gpu_seconds: float
    """Requested GPUs times run_seconds; for an elastic job, those of its last size."""
    gpu_seconds_lost: float
    """The part used by containers that had to be restarted."""
    usage: dict[str, Any] | None
    """Measured peaks: {replicas: {name: peaks}, left_out}; null without measurements."""
    rank0: str
    """Pod of rank 0."""
    git_revision: str | None
    """Commit that was fetched for `code`."""
    code_revision: dict[str, Any] | None
    """A folder as `code`: {digest, commit, dirty}."""
    model: ResultModel | None
    """The model: {uri, claim, path, container_path, bytes, sha256}; null if none is declared or there."""
    tfevents: ResultEvents | None
    """The events: {uri, claim, path, container_path, last_step, scalars}; null if none are declared or there."""
    tensorboard_url: str | None
    """Address of the TensorBoard beside the job."""
    diagnosis: dict[str, Any] | None
    """Why the job did not succeed; see below."""
    failed_replicas: list[FailedReplica]
    """[{replica, rank, exit_code, cause, message}]; a job that succeeded may have some."""
    return_value: NotRequired[Any]
    """What the function returned, if the job ran one."""


def measure(
    *,
    created_at: datetime,
    running_at: datetime | None,
    finished_at: datetime,
    gpus: int,
    lost_runs: Mapping[str, float],
    gpus_of: Mapping[str, int],
    restarts: int,
) -> Usage:
    """Compute a job's usage.

    Args:
        created_at: the object's creation.
        running_at: start of the first container; None if none ran.
        finished_at: the job's end.
        gpus: of all replicas together.
        lost_runs: per replica, the seconds its containers ran before they were restarted.
        gpus_of: GPUs per replica.
        restarts: number of restarts.
    """
    queued_until = running_at or finished_at
    run_seconds = max(0.0, (finished_at - queued_until).total_seconds())
    lost = sum(seconds * gpus_of.get(replica, 0) for replica, seconds in lost_runs.items())
    return Usage(
        queue_seconds=max(0.0, (queued_until - created_at).total_seconds()),
        run_seconds=run_seconds,
        restarts=restarts,
        gpu_seconds=gpus * run_seconds,
        gpu_seconds_lost=lost,
    )


def build_result(
    *,
    ref: JobRef,
    attempt: int,
    status: JobStatus,
    usage: Usage,
    rank0: str,
    outputs: ResolvedOutputs,
    report: OutputReport | None,
    diagnosis: Diagnosis | None,
    failed_replicas: Sequence[Mapping[str, Any]] = (),
    git_revision: str = "",
    code_revision: Mapping[str, Any] | None = None,
    returned: str = "",
    used: Mapping[str, peak_usage.PeakUsage] | None = None,
    tensorboard_url: str = "",
) -> dict[str, Any]:
    """Return the result as plain JSON values.

    `failed_replicas` is the value of `diagnosis.failed_replicas`: a successful job may have some. `git_revision` is the
    commit that rank 0 fetched and trained; None if unknown. `code_revision` is {digest, commit, dirty} of the folder
    that travelled with the job; None without one. `usage` is the value of `measured.shown`: measured usage of
    the replicas; None without measurements. `return_value` is there if the job ran a function that returned something;
    `returned` is that as JSON. `tensorboard_url` is the address of the job's TensorBoard; None without
    one.

    `model` is {uri, claim, path, container_path, bytes, sha256} and `tfevents` {uri, claim, path, container_path,
    last_step, scalars: {tag: value}}, with curves: {tag: [[step, value], …]} on request; either is None if it was not
    declared or not found. Instants are RFC 3339 texts.
    """
    fields = status.to_dict()
    return {
        "job": ref.to_dict(),
        "attempt": attempt,
        "phase": status.phase.value,
        "start": fields["started_at"],
        "end": fields["finished_at"],
        **asdict(usage),
        "usage": peak_usage.shown(used or {}, rank0=rank0),
        "rank0": rank0,
        "git_revision": git_revision or None,
        "code_revision": dict(code_revision) if code_revision else None,
        "model": _place(outputs.model, report.model if report else None, ("bytes", "sha256")),
        "tfevents": _place(outputs.tfevents, report.tfevents if report else None, ("last_step", "scalars")),
        "tensorboard_url": tensorboard_url or None,
        "diagnosis": diagnosis.to_dict() if diagnosis else None,
        "failed_replicas": [dict(one) for one in failed_replicas],
        **({"return_value": json.loads(returned)} if returned else {}),
    }


def _place(output: ResolvedOutput | None, facts: OutputFacts | None, wanted: tuple[str, ...]) -> dict[str, Any] | None:
    if output is None or facts is None or not facts.exists:
        return None
    fields = facts.to_dict()
    curves = {"curves": fields["curves"]} if fields["curves"] else {}
    return {**output.to_dict(), **{name: fields[name] for name in wanted}, **curves}
