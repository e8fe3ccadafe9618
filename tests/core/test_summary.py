"""Tests of the short reason that a list of jobs shows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ends import FAILED, LOST, MASTER, RANKS, VALUE_ERROR, WAITING, WORKER, end, record_of, wait
from ptjob_provider.core.diagnosis import Cause, Diagnosis, in_brief
from ptjob_provider.core.history import ContainerKind, PodHistory, Restarts, WaitKind
from ptjob_provider.core.status import JobPhase, JobStatus
from rows import each_row

RUNNING, SUCCEEDED, SUSPENDED = (
    JobStatus(phase=phase) for phase in (JobPhase.RUNNING, JobPhase.SUCCEEDED, JobPhase.SUSPENDED)
)
NO_CLAIM = '0/9 nodes are available: persistentvolumeclaim "datasets" not found. not found'
NO_MEMORY = "0/9 nodes are available: 9 Insufficient memory. preemption: 0/9 nodes are available"
NO_ACCOUNT = 'error looking up service account team/x: serviceaccount "x" not found'
QUOTA = 'pods "digits-worker-0" is forbidden: exceeded quota: compute, requested: memory=1Gi'
TWICE = (Restarts(replica=WORKER, container="pytorch", pod_uid="u", count=2),)
ONCE = (replace(TWICE[0], count=1),)
BOTH_ONCE = (*ONCE, replace(ONCE[0], replica=MASTER))


def brief(record: PodHistory, status: JobStatus, noted: Diagnosis | None = None) -> str:
    return in_brief("digits", record, status, noted, ranks=RANKS)


def held(kind: WaitKind, reason: str, message: str = "") -> PodHistory:
    return PodHistory(waiting=(wait(WaitKind.STARTING, MASTER), wait(kind, reason=reason, message=message)))


@each_row(
    ("record", "expected"),
    [
        (held(WaitKind.STUCK, "ErrImagePull", "localhost:5000/digits:1: not found"), "ErrImagePull"),
        (held(WaitKind.QUEUED, "Unschedulable", NO_CLAIM), "claim datasets not found"),
        (held(WaitKind.QUEUED, "Unschedulable", NO_MEMORY), "insufficient memory"),
        (held(WaitKind.REFUSED, "FailedCreatePod", QUOTA), "quota compute exceeded"),
        (held(WaitKind.FORBIDDEN, "FailedCreatePod", NO_ACCOUNT), "service account x not found"),
        (held(WaitKind.STUCK, "CreateContainerConfigError", 'secret "wandb" not found'), "secret wandb not found"),
        (PodHistory(waiting=(wait(WaitKind.INIT),)), "init container pytorch"),
        (PodHistory(waiting=(wait(WaitKind.CRASH_LOOP),), restart_counts=TWICE), "2 restarts"),
        (PodHistory(), ""),
    ],
)
def test_a_pending_job_has_what_it_waits_for(record: PodHistory, expected: str) -> None:
    """The reason is the name of the missing object if it is known, otherwise the word that kubectl shows."""
    assert brief(record, WAITING) == expected


@each_row(
    ("record", "status", "expected"),
    [
        (record_of(end(code=3), restart_counts=TWICE), RUNNING, "2 restarts: exit code 3"),
        (record_of(end(message=VALUE_ERROR)), RUNNING, "worker-0: ValueError"),
        (record_of(end(message=VALUE_ERROR)), SUSPENDED, ""),
        (record_of(end(code=0)), RUNNING, ""),
        (
            record_of(end(message=VALUE_ERROR), end(MASTER, at=61, message=LOST), restart_counts=BOTH_ONCE),
            RUNNING,
            "2 restarts: ValueError",
        ),
        (record_of(end(MASTER, message=LOST), restart_counts=BOTH_ONCE), RUNNING, "2 restarts: connection lost"),
        (held(WaitKind.STUCK, "ErrImagePull"), RUNNING, ""),
        (PodHistory(queue="no room for 8 GPUs"), SUSPENDED, "no room for 8 GPUs"),
        (PodHistory(), SUSPENDED, ""),
        (record_of(end(), end(MASTER, 137, reason="OOMKilled")), SUCCEEDED, "master-0: out of memory (and 1 more)"),
        (PodHistory(restart_counts=ONCE), SUCCEEDED, ""),
    ],
)
def test_a_job_that_has_not_failed_has_what_is_wrong_with_it(
    record: PodHistory, status: JobStatus, expected: str
) -> None:
    """For a running job, failures count and earlier waits do not."""
    assert brief(record, status) == expected


@each_row(
    ("cause", "fields", "expected"),
    [
        (Cause.OUT_OF_MEMORY, {}, "worker-0: out of memory"),
        (Cause.EXIT_CODE, {"summary": "digits-worker-0 (rank 1) exited with code 3"}, "worker-0: exit code 3"),
        (Cause.EXIT_CODE, {}, "worker-0: exit code"),
        (Cause.CRASH_LOOP, {"exception": "torch.cuda.OutOfMemoryError"}, "worker-0: OutOfMemoryError"),
        (Cause.CONNECTION_LOST, {"exception": "RuntimeError"}, "worker-0: connection lost"),
        (Cause.CONFIG, {"summary": 'cannot start: secret "wandb" not found'}, "worker-0: secret wandb not found"),
        (Cause.TIMED_OUT, {}, "timed out"),
        (Cause.QUEUED, {"replica": ""}, "queued"),
    ],
)
def test_a_failed_job_has_the_replica_and_what_it_ended_with(
    cause: Cause, fields: dict[str, Any], expected: str
) -> None:
    """The reason comes from the diagnosis; a job that ended as a whole names no replica."""
    assert (
        brief(PodHistory(), FAILED, Diagnosis.of(cause, **{"summary": "it", "replica": WORKER, **fields})) == expected
    )


@each_row(
    ("record", "message", "expected"),
    [
        (record_of(end(code=3)), "", "worker-0: exit code 3"),
        (record_of(end(code=1, kind=ContainerKind.INIT, container="init-pytorch")), "", "worker-0: start timeout"),
        (PodHistory(), "PyTorchJob digits is failed because 1 Worker replica(s) failed.", "see ptjob get"),
        (PodHistory(), "jobset failed due to one or more job failures (first failed job: digits-node-0)", "see ptjob"),
        (PodHistory(), "PyTorchJob digits is failed because its spec is bad.", "its spec is bad"),
        (PodHistory(), "", "PyTorchJobFailed"),
    ],
)
def test_a_failed_job_that_nobody_followed_has_what_its_object_tells(
    record: PodHistory, message: str, expected: str
) -> None:
    """The reason comes from the stored history; the replica type in the operator's message is often not the cause."""
    assert brief(record, replace(FAILED, message=message, reason="PyTorchJobFailed")).startswith(expected)


def test_a_reason_fits_in_a_line() -> None:
    assert len(brief(PodHistory(queue="no room " * 20), SUSPENDED)) == 40
