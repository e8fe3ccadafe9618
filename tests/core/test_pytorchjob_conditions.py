from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.status import JobPhase
from recorded import recorded
from rows import each_row


def at(minute: int, second: int) -> datetime:
    return datetime(2026, 11, 20, 10, minute, second, tzinfo=UTC)


@each_row(
    ("story", "phase", "reason", "finished_at"),
    [
        ("created", JobPhase.PENDING, "PyTorchJobCreated", None),
        ("running", JobPhase.RUNNING, "PyTorchJobRunning", None),
        ("restarting", JobPhase.RUNNING, "PyTorchJobRestarting", None),
        ("suspended", JobPhase.SUSPENDED, "PyTorchJobSuspended", None),
        ("resumed", JobPhase.RUNNING, "PyTorchJobRunning", None),
        ("succeeded", JobPhase.SUCCEEDED, "PyTorchJobSucceeded", at(7, 30)),
        ("succeeded-restarting-kept", JobPhase.SUCCEEDED, "PyTorchJobSucceeded", at(7, 30)),
        ("failed", JobPhase.FAILED, "PyTorchJobFailed", at(1, 40)),
        ("failed-exitcode", JobPhase.FAILED, "PyTorchJobFailed", at(1, 40)),
        ("succeeded-and-failed", JobPhase.FAILED, "PyTorchJobFailed", at(6, 20)),
        ("old-operator", JobPhase.RUNNING, "JobRunning", None),
    ],
)
def test_the_phase_follows_from_the_types_of_the_true_conditions(
    story: str, phase: JobPhase, reason: str, finished_at: datetime | None
) -> None:
    """Failed beats Succeeded, both beat Suspended, Restarting and Running; the reason is returned, but not used."""
    status = PYTORCHJOB.read_status(recorded(f"pytorchjob-{story}"))

    assert (status.phase, status.reason, status.finished_at) == (phase, reason, finished_at)


def test_creation_and_start_are_read_where_they_are_known() -> None:
    """The object's creation always, the operator's start if its version writes it."""
    now, old = (PYTORCHJOB.read_status(recorded(f"pytorchjob-{story}")) for story in ("running", "old-operator"))

    assert (now.created_at, now.started_at) == (at(0, 0), at(0, 1))
    assert (old.created_at, old.started_at) == (at(0, 0), None)


@each_row("seen", [{}, {"status": {}}, {"status": {"conditions": None}}])
def test_a_job_that_no_operator_has_seen_is_pending_without_a_reason(seen: dict[str, Any]) -> None:
    """Neither an object without status nor one with an empty one is an error."""
    fresh = recorded("pytorchjob-created")
    del fresh["status"]

    status = PYTORCHJOB.read_status({**fresh, **seen})

    assert (status.phase, status.reason, status.message) == (JobPhase.PENDING, "", "")


def test_an_elastic_job_trains_with_its_least_replicas() -> None:
    job = recorded("pytorchjob-running")

    assert PYTORCHJOB.least(job) is None
    assert PYTORCHJOB.least({**job, "spec": {**job["spec"], "elasticPolicy": {"minReplicas": 2}}}) == 2
    assert PYTORCHJOB.least({**job, "spec": {**job["spec"], "elasticPolicy": {"maxReplicas": 3}}}) == 3


def test_a_jobs_own_deadline_is_counted_from_its_start() -> None:
    """Only a running job has one: a suspended job has no start, an ended one needs none."""
    running, created, failed = (recorded(f"pytorchjob-{story}") for story in ("running", "created", "failed"))
    for job in (running, created, failed):
        job["spec"]["runPolicy"] = {"activeDeadlineSeconds": 90}
    del created["status"]

    assert PYTORCHJOB.due_at(running) == at(1, 31)
    assert PYTORCHJOB.due_at(created) is None
    assert PYTORCHJOB.due_at(failed) is None
    assert PYTORCHJOB.due_at(recorded("pytorchjob-old-operator")) is None
