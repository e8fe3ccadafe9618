from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from ptjob_provider.core.local.operator import (
    Pass,
    created,
    defaulted,
    has,
    instant,
    is_finished,
    reconcile,
    total_replicas,
    with_condition,
)
from rows import each_row

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)


def job(*, master: str = "Never", worker: str | None = "Never", **policy: Any) -> dict[str, Any]:
    roles = {"Master": {"restartPolicy": master, "template": {}}}
    if worker:
        roles["Worker"] = {"restartPolicy": worker, "template": {}}
    meta = {"name": "j", "namespace": "ns"}
    return defaulted({"metadata": meta, "spec": {"pytorchReplicaSpecs": roles, "runPolicy": policy}})


def pod(name: str, phase: str = "Running", *, code: int | None = None, restarts: int = 0) -> dict[str, Any]:
    role, index = name.split("-")
    state = {"terminated": {"exitCode": code}} if code is not None else {"running": {}}
    labels = {"training.kubeflow.org/replica-type": role, "training.kubeflow.org/replica-index": index}
    return {
        "metadata": {"name": f"j-{name}", "labels": labels},
        "status": {
            "phase": phase,
            "containerStatuses": [
                {"name": "beside", "restartCount": 0, "state": {"terminated": {"exitCode": 99}}},
                {"name": "pytorch", "restartCount": restarts, "state": state},
            ],
        },
    }


def types(status: dict[str, Any]) -> list[str]:
    return [one["type"] for one in status["conditions"] if one["status"] == "True"]


def message(status: dict[str, Any], kind: str) -> str:
    return next(one["message"] for one in status["conditions"] if one["type"] == kind)


def after(one: dict[str, Any], *passes: list[dict[str, Any]], now: datetime = NOW) -> Pass:
    """Return the outcome of the last of several passes over a job that was just created."""
    outcome = Pass(status=created(one, NOW))
    for pods in passes:
        outcome = reconcile(one, outcome.status, pods, now)
    return outcome


def test_a_master_that_succeeded_is_seen_before_a_worker_that_failed() -> None:
    """In the operator, the order of a map decides."""
    outcome = after(job(), [pod("master-0", "Succeeded"), pod("worker-0", "Failed", code=1)])

    assert types(outcome.status) == ["Created", "Succeeded"]


def test_restarts_of_a_pod_that_does_not_run_do_not_count() -> None:
    """Its init container may still succeed."""
    one = job(worker="OnFailure", backoffLimit=1)

    outcome = after(one, [pod("master-0"), pod("worker-0", "Pending", restarts=5)])

    assert not has(outcome.status, "Failed")


def test_restarts_of_init_containers_count() -> None:
    waiting = pod("master-0")
    waiting["status"]["initContainerStatuses"] = [{"name": "init", "restartCount": 2, "state": {}}]

    assert has(after(job(master="OnFailure", worker=None, backoffLimit=2), [waiting]).status, "Failed")


def test_a_backoff_limit_of_zero_allows_no_failed_pod() -> None:
    """This includes a role that never restarts."""
    one = job(worker="Never", backoffLimit=0, cleanPodPolicy="Running")

    outcome = after(one, [pod("master-0"), pod("worker-0", "Failed", code=1)])

    assert "backoff limit" in message(outcome.status, "Failed")
    assert outcome.delete == ("j-master-0",)


def through(*kinds: str) -> dict[str, Any]:
    status: dict[str, Any] = {}
    for kind in kinds:
        status = with_condition(status, kind, "", now=NOW)
    return status


@each_row(
    ("kinds", "conditions"),
    [
        (("Created", "Running", "Restarting"), [("Created", "True"), ("Restarting", "True")]),
        (("Created", "Restarting", "Running"), [("Created", "True"), ("Running", "True")]),
        (("Running", "Succeeded"), [("Running", "False"), ("Succeeded", "True")]),
        (("Running", "Failed"), [("Running", "False"), ("Failed", "True")]),
        (("Restarting", "Succeeded"), [("Restarting", "True"), ("Succeeded", "True")]),
        (("Succeeded", "Failed"), [("Succeeded", "True"), ("Failed", "True")]),
        (("Failed", "Succeeded"), [("Failed", "True")]),
    ],
)
def test_conditions_follow_each_other_as_in_the_operator(
    kinds: tuple[str, ...], conditions: list[tuple[str, str]]
) -> None:
    """Running and Restarting replace each other, an end sets Running to false, and after Failed nothing changes."""
    status = through(*kinds)

    assert [(each["type"], each["status"]) for each in status["conditions"]] == conditions
    assert has(status, "Running") is (("Running", "True") in conditions)
    assert is_finished(status) is bool({"Succeeded", "Failed"} & {*kinds})


def test_only_a_change_of_truth_is_a_transition() -> None:
    """The same condition is unchanged, a new reason is an update, and a new status moves the condition to the end."""
    before, later = through("Suspended", "Created"), NOW + timedelta(seconds=5)

    same = with_condition(before, "Suspended", "other words", now=later)
    (_, updated) = with_condition(before, "Suspended", "", now=later, reason="Other")["conditions"]
    (first, changed) = with_condition(before, "Suspended", "", now=later, truth="False")["conditions"]

    assert same == before
    assert (updated["lastUpdateTime"], updated["lastTransitionTime"]) == (instant(later), instant(NOW))
    assert (first["type"], changed["status"], changed["lastTransitionTime"]) == ("Created", "False", instant(later))


def unset(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "j"},
        "spec": {"pytorchReplicaSpecs": {"worker": {"replicas": 3}, "MASTER": {}}, **spec},
    }


def test_a_job_gets_the_operators_defaults() -> None:
    """Role names are normalized and sorted by rank; the input is not changed."""
    given = unset()

    full = defaulted(given)
    kept = defaulted(unset(runPolicy={"cleanPodPolicy": "All", "suspend": None}, nprocPerNode="gpu"))["spec"]

    assert full["spec"] == {
        "pytorchReplicaSpecs": {
            "Master": {"replicas": 1, "restartPolicy": "OnFailure"},
            "Worker": {"replicas": 3, "restartPolicy": "OnFailure"},
        },
        "runPolicy": {"cleanPodPolicy": "None"},
        "nprocPerNode": "auto",
    }
    assert list(full["spec"]["pytorchReplicaSpecs"]) == ["Master", "Worker"]
    assert total_replicas(full["spec"]) == 4
    assert given == unset()
    assert (kept["runPolicy"], kept["nprocPerNode"]) == ({"cleanPodPolicy": "All", "suspend": None}, "gpu")
    assert "nprocPerNode" not in defaulted(unset(elasticPolicy={"nProcPerNode": 2}))["spec"]


@each_row(
    ("policy", "low", "high"),
    [
        ({}, 3, 3),
        ({"minReplicas": 1}, 1, 1),
        ({"maxReplicas": 5}, 5, 5),
        ({"minReplicas": 1, "maxReplicas": 5}, 1, 5),
    ],
)
def test_an_elastic_range_is_completed(policy: dict[str, Any], low: int, high: int) -> None:
    found = defaulted(unset(elasticPolicy=policy))["spec"]["elasticPolicy"]

    assert (found["minReplicas"], found["maxReplicas"]) == (low, high)
