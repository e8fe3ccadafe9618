from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from ptjob_provider.core.local.status import has, initial_status, instant, is_finished, next_status, with_condition
from rows import each_row

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)


def job(**policy: Any) -> dict[str, Any]:
    return {"metadata": {"name": "j", "namespace": "ns"}, "spec": {"runPolicy": policy}}


def pods(**phases: str) -> list[dict[str, Any]]:
    """Return pods by their role and phases, such as `master="Running"` or `worker="Running Failed"`."""
    return [
        {"metadata": {"labels": {"training.kubeflow.org/replica-type": role}}, "status": {"phase": phase}}
        for role, words in phases.items()
        for phase in words.split()
    ]


def through(*looks: list[dict[str, Any]], now: datetime = NOW, **policy: Any) -> dict[str, Any]:
    """Return the status after several looks at the pods of a job that was just created."""
    status = initial_status(job(**policy), NOW)
    for look in looks:
        status = next_status(job(**policy), status, look, now)
    return status


def conditions(status: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["type"], each["status"]) for each in status["conditions"]]


@each_row(
    ("phases", "last"),
    [
        ({"master": "Pending", "worker": "Running"}, "Created"),
        ({"master": "Running", "worker": "Pending"}, "Running"),
        ({"master": "Succeeded", "worker": "Running"}, "Succeeded"),
        ({"master": "Running", "worker": "Succeeded"}, "Running"),
        ({"master": "Running", "worker": "Succeeded Failed"}, "Failed"),
        ({"master": "Failed", "worker": "Running"}, "Failed"),
        ({"master": "Succeeded", "worker": "Failed"}, "Succeeded"),
        ({"worker": "Succeeded Running"}, "Running"),
        ({"worker": "Succeeded Succeeded"}, "Succeeded"),
        ({"worker": "Pending Failed"}, "Failed"),
    ],
)
def test_rank_0s_role_completes_the_job_and_the_first_failure_fails_it(phases: dict[str, str], last: str) -> None:
    status = through(pods(**phases))

    assert conditions(status)[-1] == (last, "True")
    assert is_finished(status) is (last in ("Succeeded", "Failed"))


def test_after_an_end_nothing_changes() -> None:
    """The replicas that are then stopped do not count."""
    failed = through(pods(master="Running", worker="Running"), pods(master="Running", worker="Failed"))

    assert conditions(failed) == [("Created", "True"), ("Running", "False"), ("Failed", "True")]
    assert failed["replicaStatuses"] == {"Master": {"active": 1}, "Worker": {"failed": 1}}
    assert next_status(job(), failed, pods(master="Succeeded", worker="Failed"), NOW + timedelta(1)) == failed
    assert not has(failed, "Running")


@each_row(("seconds", "is_over"), [(59, False), (60, True)])
def test_a_deadline_counts_from_the_start(seconds: int, *, is_over: bool) -> None:
    running = pods(master="Running")

    late = through(running, now=NOW + timedelta(seconds=seconds), activeDeadlineSeconds=60)
    unlimited = through(running, now=NOW + timedelta(days=9))
    enormous = through(running, now=NOW + timedelta(days=9), activeDeadlineSeconds=10**15)

    assert has(late, "Failed") is is_over
    assert not has(unlimited, "Failed")
    assert not has(enormous, "Failed")


def test_a_condition_keeps_its_first_message_and_time() -> None:
    before = with_condition({}, "Created", "first", now=NOW)

    assert with_condition(before, "Created", "second", now=NOW + timedelta(1)) == before
    assert before["conditions"][0]["lastTransitionTime"] == instant(NOW) == "2026-11-20T10:00:00.000000Z"
