from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
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


def job(
    *,
    master: str | None = "Never",
    worker: str | None = "Never",
    workers: int = 1,
    elastic: bool = False,
    **policy: Any,
) -> dict[str, Any]:
    roles = {
        "Master": {"restartPolicy": master, "template": {}} if master else None,
        "Worker": {"restartPolicy": worker, "replicas": workers, "template": {}} if worker else None,
    }
    spec = {"pytorchReplicaSpecs": {name: role for name, role in roles.items() if role}, "runPolicy": policy}
    elastic_policy = {"elasticPolicy": {}} if elastic else {}
    return defaulted({"metadata": {"name": "j", "namespace": "ns"}, "spec": {**spec, **elastic_policy}})


def pod(
    name: str, phase: str = "Running", *, code: int | None = None, restarts: int = 0, going: bool = False
) -> dict[str, Any]:
    role, index = name.split("-")
    state = {"terminated": {"exitCode": code}} if code is not None else {"running": {}}
    labels = {"training.kubeflow.org/replica-type": role, "training.kubeflow.org/replica-index": index}
    deletion = {"deletionTimestamp": "2026-11-20T10:00:00Z"} if going else {}
    return {
        "metadata": {"name": f"j-{name}", "labels": labels, **deletion},
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
    """Return the outcome of the last of several passes, beginning with a job that was just created."""
    outcome = Pass(status=created(one, NOW))
    for pods in passes:
        outcome = reconcile(one, outcome.status, pods, now)
    return outcome


def test_missing_pods_are_created_and_the_clock_starts() -> None:
    """One for each replica that has none."""
    outcome = after(job(workers=2), [pod("worker-0")])

    assert outcome.create == (("Master", 0), ("Worker", 1))
    assert outcome.status["startTime"] == "2026-11-20T10:00:00.000000Z"
    assert types(outcome.status) == ["Created"]


def test_a_job_runs_when_its_master_runs() -> None:
    """Whatever the workers do."""
    outcome = after(job(), [pod("master-0"), pod("worker-0", "Pending")])

    assert types(outcome.status) == ["Created", "Running"]
    assert outcome.status["replicaStatuses"]["Master"] == {
        "active": 1,
        "selector": (
            "training.kubeflow.org/job-name=j,training.kubeflow.org/operator-name=pytorchjob-controller,"
            "training.kubeflow.org/replica-type=master"
        ),
    }


def test_a_job_has_succeeded_when_its_master_has() -> None:
    """Workers may still run; they count as succeeded in the next pass."""
    outcome = after(job(), [pod("master-0", "Succeeded"), pod("worker-0")])
    again = reconcile(job(), outcome.status, [pod("master-0", "Succeeded"), pod("worker-0")], NOW)

    assert message(outcome.status, "Succeeded") == "PyTorchJob j is successfully completed."
    assert outcome.status["completionTime"] == "2026-11-20T10:00:00.000000Z"
    assert outcome.delete == ()
    assert again.status["replicaStatuses"]["Worker"]["succeeded"] == 1
    assert "active" not in again.status["replicaStatuses"]["Worker"]


def test_a_master_that_succeeded_is_seen_before_a_worker_that_failed() -> None:
    """Where the operator's map order would decide."""
    outcome = after(job(), [pod("master-0", "Succeeded"), pod("worker-0", "Failed", code=1)])

    assert types(outcome.status) == ["Created", "Succeeded"]


def test_a_finished_job_without_active_replicas_keeps_its_counts() -> None:
    """Nothing is counted twice."""
    pods = [pod("master-0", "Succeeded"), pod("worker-0", "Pending")]

    outcome = after(job(), pods, pods, pods)

    assert outcome.status["replicaStatuses"]["Master"]["succeeded"] == 1
    assert "succeeded" not in outcome.status["replicaStatuses"]["Worker"]


def test_a_replica_that_is_never_restarted_fails_the_job() -> None:
    """With its role and how many."""
    outcome = after(job(workers=2), [pod("master-0"), pod("worker-0", "Failed", code=1), pod("worker-1")])

    assert types(outcome.status) == ["Created", "Failed"]
    assert message(outcome.status, "Failed") == "PyTorchJob j is failed because 1 Worker replica(s) failed."
    assert outcome.status["completionTime"]


@each_row(
    ("policy", "deleted"),
    [("None", ()), ("Running", ("j-master-0", "j-worker-1")), ("All", ("j-master-0", "j-worker-0", "j-worker-1"))],
)
def test_a_failed_jobs_pods_are_cleaned_by_its_policy(policy: str, deleted: tuple[str, ...]) -> None:
    """Pending ones count as running: they would run later."""
    pods = [pod("master-0"), pod("worker-0", "Failed", code=1), pod("worker-1", "Pending")]

    outcome = after(job(workers=2, cleanPodPolicy=policy), pods, pods)

    assert outcome.delete == deleted


@each_row(("policy", "code"), [("ExitCode", 137), ("OnFailure", 1), ("Always", 1)])
def test_a_failed_pod_is_made_again(policy: str, code: int) -> None:
    """By its own role's policy; the job is restarting until it runs again."""
    one = job(worker=policy)
    failed = after(one, [pod("master-0"), pod("worker-0", "Failed", code=code)])
    gone = reconcile(one, failed.status, [pod("master-0")], NOW)

    assert failed.delete == ("j-worker-0",)
    assert has(failed.status, "Restarting")
    assert message(failed.status, "Restarting") == "PyTorchJob j is restarting because 1 Worker replica(s) failed."
    assert gone.create == (("Worker", 0),)
    assert has(gone.status, "Running")


def test_a_pod_without_an_exit_code_is_made_again() -> None:
    """It was not the program that failed."""
    evicted = pod("worker-0", "Failed", code=1)
    evicted["status"]["containerStatuses"] = []

    assert after(job(worker="ExitCode"), [pod("master-0"), evicted]).delete == ("j-worker-0",)


def test_a_permanent_exit_code_fails_the_job_without_a_completion_time() -> None:
    """As the operator does it: such a job is never removed by its time to live."""
    outcome = after(job(worker="ExitCode"), [pod("master-0"), pod("worker-0", "Failed", code=127)])

    assert message(outcome.status, "Failed") == 'job "j" is failing because "Worker" replica(s) failed.'
    assert "completionTime" not in outcome.status
    assert outcome.delete == ()


def test_a_pod_that_is_being_deleted_counts_as_failed() -> None:
    """The operator takes it for one of a lost node."""
    outcome = after(job(worker="OnFailure"), [pod("master-0"), pod("worker-0", going=True)])

    assert outcome.status["replicaStatuses"]["Worker"]["failed"] == 1
    assert message(outcome.status, "Restarting") == "PyTorchJob j is restarting because 1 Worker replica(s) failed."


def test_workers_alone_succeed_together() -> None:
    """Until all have, the job runs."""
    one = job(master=None, worker="OnFailure", workers=2)

    half = after(one, [pod("worker-0", "Succeeded"), pod("worker-1")])
    whole = reconcile(one, half.status, [pod("worker-0", "Succeeded"), pod("worker-1", "Succeeded")], NOW)

    assert types(half.status) == ["Created", "Running"]
    assert message(half.status, "Running") == "PyTorchJob ns/j is running."
    assert message(whole.status, "Succeeded") == "PyTorchJob ns/j successfully completed."


def test_one_worker_of_an_elastic_job_decides() -> None:
    """Its first success is the job's."""
    one = job(master=None, worker="OnFailure", workers=2, elastic=True)

    assert types(after(one, [pod("worker-0", "Succeeded"), pod("worker-1")]).status) == ["Created", "Succeeded"]
    assert types(after(one, [pod("worker-0"), pod("worker-1")]).status) == ["Created", "Running"]


@each_row(
    ("limit", "restarts", "failed"), [(2, (1, 0), False), (2, (1, 1), True), (0, (0, 0), False), (0, (1, 0), True)]
)
def test_the_backoff_limit_counts_restarts_of_all_pods(
    limit: int,
    restarts: tuple[int, int],
    failed: bool,  # noqa: FBT001 - a table
) -> None:
    """Of roles that are restarted; with a limit of 0 the first is too many."""
    one = job(master="OnFailure", worker="Always", backoffLimit=limit)

    outcome = after(one, [pod("master-0", restarts=restarts[0]), pod("worker-0", restarts=restarts[1])])

    assert has(outcome.status, "Failed") is failed
    if failed:
        expected = "Job j has failed because it has reached the specified backoff limit"
        assert message(outcome.status, "Failed") == expected
        assert outcome.status["completionTime"]


def test_restarts_of_a_role_that_is_never_restarted_do_not_count() -> None:
    """Nor those of a pod that does not run."""
    one = job(master="Never", worker="OnFailure", backoffLimit=1)

    outcome = after(one, [pod("master-0", restarts=5), pod("worker-0", "Pending", restarts=5)])

    assert not has(outcome.status, "Failed")


def test_restarts_of_init_containers_count() -> None:
    """Like the others'."""
    waiting = pod("master-0")
    waiting["status"]["initContainerStatuses"] = [{"name": "init", "restartCount": 2, "state": {}}]

    assert has(after(job(master="OnFailure", worker=None, backoffLimit=2), [waiting]).status, "Failed")


def test_a_backoff_limit_of_zero_allows_no_failed_pod() -> None:
    """Even of a role that is never restarted; a pod that was known to have failed is no news."""
    one = job(worker="Never", backoffLimit=0, cleanPodPolicy="Running")
    pods = [pod("master-0"), pod("worker-0", "Failed", code=1)]

    news = after(one, pods)
    known = reconcile(one, {**created(one, NOW), "replicaStatuses": {"Worker": {"failed": 1}}}, pods, NOW)

    assert "backoff limit" in message(news.status, "Failed")
    assert news.delete == ("j-master-0",)
    assert message(known.status, "Failed") == "PyTorchJob j is failed because 1 Worker replica(s) failed."


def test_a_job_past_its_deadline_fails_on_time() -> None:
    """Counted from its start; its pods are cleaned by its policy."""
    one = job(worker=None, activeDeadlineSeconds=60, cleanPodPolicy="All")
    started = after(one, [pod("master-0")])

    early = reconcile(one, started.status, [pod("master-0")], NOW + timedelta(seconds=59))
    late = reconcile(one, started.status, [pod("master-0")], NOW + timedelta(seconds=60))

    assert not has(early.status, "Failed")
    assert message(late.status, "Failed") == "Job j has failed because it was active longer than specified deadline"
    assert late.delete == ("j-master-0",)


def test_a_suspended_job_has_no_pods() -> None:
    """It says so once, and does not run."""
    one, pods = job(), [pod("master-0"), pod("worker-0")]
    asleep = job(suspend=True)

    running = after(one, pods)
    outcome = reconcile(asleep, running.status, pods, NOW)
    again = reconcile(asleep, outcome.status, [], NOW)

    assert outcome.delete == ("j-master-0", "j-worker-0")
    assert types(outcome.status) == ["Created", "Suspended"]
    assert message(outcome.status, "Suspended") == "PyTorchJob j is suspended."
    assert "active" not in outcome.status["replicaStatuses"]["Master"]
    assert again.status == outcome.status


def test_a_job_that_was_suspended_from_the_start_never_started() -> None:
    """Its clock has not begun."""
    outcome = after(job(suspend=True), [])

    assert types(outcome.status) == ["Created", "Suspended"]
    assert "startTime" not in outcome.status
    assert outcome.create == ()


def test_a_resumed_job_starts_its_clock_again() -> None:
    """Suspended stays in the list, as false, and new pods are made."""
    asleep = after(job(suspend=True), [])

    outcome = reconcile(job(), asleep.status, [], NOW + timedelta(hours=1))

    (suspended,) = [one for one in outcome.status["conditions"] if one["type"] == "Suspended"]
    assert (suspended["status"], suspended["reason"]) == ("False", "PyTorchJobResumed")
    assert outcome.status["startTime"] == "2026-11-20T11:00:00.000000Z"
    assert len(outcome.create) == 2


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
    """Running and Restarting take turns, the end makes Running false, and after Failed nothing changes."""
    status = through(*kinds)

    assert [(each["type"], each["status"]) for each in status["conditions"]] == conditions
    assert has(status, "Running") is (("Running", "True") in conditions)
    assert is_finished(status) is bool({"Succeeded", "Failed"} & {*kinds})


def test_a_condition_has_the_operators_reason_and_both_times() -> None:
    """Unless it is given another reason; an instant is in UTC whatever zone it came in."""
    (condition,) = with_condition({}, "Created", "made", now=NOW)["conditions"]

    assert condition == {
        "type": "Created",
        "status": "True",
        "reason": "PyTorchJobCreated",
        "message": "made",
        "lastUpdateTime": "2026-11-20T10:00:00.000000Z",
        "lastTransitionTime": "2026-11-20T10:00:00.000000Z",
    }
    assert with_condition({}, "Failed", "", now=NOW, reason="Lost")["conditions"][0]["reason"] == "Lost"
    assert instant(NOW.astimezone(timezone(timedelta(hours=2)))) == "2026-11-20T10:00:00.000000Z"


def test_only_a_change_of_truth_is_a_transition() -> None:
    """The same condition is left alone, a new reason is an update, a change of truth moves it to the end."""
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
    """Roles are spelled its way and come in the order of their ranks; what was given is not touched."""
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
    """With its other end, or with the number of workers."""
    found = defaulted(unset(elasticPolicy=policy))["spec"]["elasticPolicy"]

    assert (found["minReplicas"], found["maxReplicas"]) == (low, high)
