"""Tests of reading a TrainJob: its status, its replicas, and the assignment of pods to them."""

from __future__ import annotations

from typing import Any

import pytest

from ptjob_provider.core import kinds
from ptjob_provider.core.diagnosis import Cause, diagnose
from ptjob_provider.core.history import PodHistory
from ptjob_provider.core.identity import JobRef, Manifest
from ptjob_provider.core.kinds import TRAINJOB, Replica
from ptjob_provider.core.status import JobPhase, parse_instant
from rows import each_row

CREATED, LATER = "2026-11-20T10:00:00Z", "2026-11-20T10:05:00Z"
REF = JobRef(kind="TrainJob", namespace="team", name="digits", uid="job")


def job(*conditions: tuple[str, str, str], ready: int = 0, active: int = 0, **spec: Any) -> Manifest:
    """Return a job with these conditions: type, status, reason."""
    found = [
        {"type": kind, "status": status, "reason": reason, "message": "why", "lastTransitionTime": LATER}
        for kind, status, reason in conditions
    ]
    return {
        "kind": "TrainJob",
        "metadata": {"name": "digits", "creationTimestamp": CREATED},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, **spec},
        "status": {"conditions": found, "jobsStatus": [{"name": "node", "ready": ready, "active": active}]},
    }


@each_row(
    ("found", "phase", "reason"),
    [
        (job(), JobPhase.PENDING, ""),
        (job(active=1, ready=1), JobPhase.RUNNING, ""),
        (job(("Suspended", "True", "Suspended")), JobPhase.SUSPENDED, "Suspended"),
        (job(("Suspended", "False", "Resumed"), active=1), JobPhase.PENDING, ""),
        (job(("Suspended", "False", "Resumed"), ("Complete", "True", "Done")), JobPhase.SUCCEEDED, "Done"),
        (job(("Failed", "True", "DeadlineExceeded"), ready=1), JobPhase.FAILED, "DeadlineExceeded"),
        (job(("Failed", "False", "Resumed"), ready=1), JobPhase.RUNNING, ""),
        ({"metadata": {}, "spec": {}}, JobPhase.PENDING, ""),
    ],
)
def test_the_true_condition_decides_and_else_the_ready_nodes(found: Manifest, phase: JobPhase, reason: str) -> None:
    """A job that was suspended once keeps a condition that is False, which means nothing."""
    status = TRAINJOB.read_status(found)

    assert (status.phase, status.reason) == (phase, reason)
    assert (status.finished_at is not None) is phase.is_terminal


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize(
    ("reason", "phase", "deciding"),
    [
        ("DeadlineExceeded", JobPhase.FAILED, "DeadlineExceeded"),
        ("TrainingRuntimeNotSupported", JobPhase.SUCCEEDED, "AllJobsCompleted"),
    ],
)
def test_of_a_job_that_is_complete_and_failed_the_condition_that_came_first_decides(
    reason: str, phase: JobPhase, deciding: str, *, is_reversed: bool
) -> None:
    """In any order of the list: Trainer checks no deadline of a complete job, and nothing else after the deadline.

    Past the deadline the JobSet may complete while it is being deleted, and Trainer keeps both. Any other Failed comes
    after Complete, such as when Trainer starts again without the runtime, and is removed again.
    """
    both = [("Failed", "True", reason), ("Complete", "True", "AllJobsCompleted")]

    status = TRAINJOB.read_status(job(*(reversed(both) if is_reversed else both)))

    assert (status.phase, status.reason) == (phase, deciding)


def test_a_job_has_started_when_it_was_made_or_resumed() -> None:
    """Its own deadline counts from then; while it is suspended it has no start."""
    starts = [
        TRAINJOB.read_status(found).started_at
        for found in (job(), job(("Suspended", "True", "Suspended")), job(("Suspended", "False", "Resumed")))
    ]

    assert starts == [parse_instant(CREATED), None, parse_instant(LATER)]
    assert TRAINJOB.due_at(job(activeDeadlineSeconds=60)) is None


@pytest.mark.parametrize(
    ("found", "began", "phase"),
    [
        (job(), CREATED, JobPhase.RUNNING),
        (job(), None, JobPhase.PENDING),
        (job(("Suspended", "False", "Resumed")), CREATED, JobPhase.PENDING),
        (job(("Suspended", "False", "Resumed")), LATER, JobPhase.RUNNING),
        (job(("Failed", "True", "FailedJobs")), CREATED, JobPhase.FAILED),
    ],
)
def test_a_job_whose_nodes_have_all_run_is_not_pending_again_until_it_is_resumed(
    found: Manifest, began: str | None, phase: JobPhase
) -> None:
    """While its pods end none is ready; a run before it was suspended does not count."""
    record = PodHistory(all_running_at=parse_instant(began))

    assert kinds.observed_status(found, record).phase is phase
    assert TRAINJOB.running_since(found) is None


def test_the_cause_of_a_job_that_ran_longer_than_it_may_is_its_deadline() -> None:
    """Trainer reports it by the condition's reason, unlike training-operator."""
    status = TRAINJOB.read_status(job(("Failed", "True", "DeadlineExceeded")))

    found = diagnose(PodHistory(), status, ranks={})

    assert (found.cause, found.retryable) == (Cause.DEADLINE, False)


def pod(**labels: str) -> Manifest:
    """Return a pod with JobSet's labels."""
    return {"metadata": {"name": "digits-node-0-1-x7kqp", "labels": labels}}


WHOLE = pod(
    **{
        "jobset.sigs.k8s.io/jobset-name": "digits",
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "jobset.sigs.k8s.io/job-index": "0",
        "batch.kubernetes.io/job-completion-index": "1",
    }
)


def test_a_pod_is_the_replica_of_its_completion_index() -> None:
    """Its own name has a random suffix that changes with each pod of the index."""
    assert TRAINJOB.replica_of(WHOLE) == "digits-node-0-1"
    assert TRAINJOB.replica_of(pod()) == "digits-node-0-1-x7kqp"


def test_a_pod_belongs_to_the_job_that_it_names() -> None:
    """Its owner is a Job, whose owner is a JobSet; the provider may read neither."""
    assert kinds.is_pod_of(WHOLE, REF)
    assert not kinds.is_pod_of(pod(), REF)
    assert TRAINJOB.pod_selector("digits") == "jobset.sigs.k8s.io/jobset-name=digits"


def test_the_nodes_of_a_job_are_its_replicas() -> None:
    """Rank 0 is index 0; a job without a number has one."""
    trainer = {"numNodes": 2, "resourcesPerNode": {"limits": {"nvidia.com/gpu": "4"}}}

    assert TRAINJOB.replicas(job(trainer=trainer)) == (
        Replica(name="digits-node-0-0", role="node", index=0, rank=0, gpus=4),
        Replica(name="digits-node-0-1", role="node", index=1, rank=1, gpus=4),
    )
    assert len(TRAINJOB.replicas(job())) == 1
    assert TRAINJOB.is_restarted(job(), "digits-node-0-0")


def test_the_secrets_of_its_variables_are_known() -> None:
    """They are masked in the log."""
    env = [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}]

    assert kinds.secrets_in_env(job(trainer={"env": env})) == {"hub": {"token"}}


def test_an_existing_trainjob_can_only_be_suspended() -> None:
    """Only the suspension: JobSet itself stops what runs, and an ended job has no time to live."""
    assert TRAINJOB.suspended(suspend=True) == {"spec": {"suspend": True}}
    assert (TRAINJOB.STOP_RUNNING_PODS, TRAINJOB.expiring(job())) == (None, None)
    assert not TRAINJOB.expires(job())
    assert TRAINJOB.stops_by_itself(job())
