"""Tests of finding orphaned jobs and what happens to them. The back-end and the waiting tasks are scripted."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from fakes import MemoryStore, ScriptedBackend, finished
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.errors import ClusterError, ClusterUnavailable
from ptjob_provider.core.identity import MANAGED_LABEL, OWNER_ANNOTATION, UNFOLLOWED_ANNOTATION, Instance, Owner
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.run.orphans import LEAVE_RUNNING_ANNOTATION, LeaveRunning, Orphan, sweep, with_leave_running
from ptjob_provider.core.run.submit import ensure_submitted
from ptjob_provider.core.spec import TrainingJob
from rows import each_row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Manifest

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
IDS = {"dag_id": "digits", "task_id": "train", "run_id": "r1"}
OURS = {"instance": "prod", "ids": IDS}


def job(name: str = "digits", *, owner: Any = OURS, age: float = 60, uid: str = "", **more: Any) -> Manifest:
    """Return a running job that is this many minutes old."""
    role = {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}}
    text = owner if isinstance(owner, str) else json.dumps(owner)
    policy = {"cleanPodPolicy": more.pop("clean_pod_policy")} if "clean_pod_policy" in more else {}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {
            "namespace": "team",
            "name": name,
            "uid": uid or f"uid-{name}",
            "creationTimestamp": (NOW - timedelta(minutes=age)).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "labels": {MANAGED_LABEL: "true"},
            "annotations": {OWNER_ANNOTATION: text, **more.pop("annotations", {})},
            **more,
        },
        "spec": {"runPolicy": policy, "pytorchReplicaSpecs": {"Master": role}},
        "status": {"conditions": [{"type": "Running", "status": "True", "reason": "R", "message": "m"}]},
    }


def holding(*jobs: Manifest) -> ScriptedBackend:
    backend = ScriptedBackend()
    backend.jobs = {("team", each["metadata"]["name"]): each for each in jobs}
    return backend


async def swept(
    backend: ScriptedBackend, state: str | Exception | None = "failed", *, stop: bool = True
) -> list[Orphan]:
    """Return the results of one sweep of the namespace; every task has the same state, or cannot be asked for it."""

    async def state_of(_owner: Mapping[str, str]) -> str | None:
        if isinstance(state, Exception):
            raise state
        return state

    sweeping = sweep(backend, state_of, namespace="team", instance=Instance("prod"), stop=stop, now=NOW)
    return [finding async for finding in sweeping]


WAITING = ("running", "deferred", "queued", "scheduled", "up_for_retry", "up_for_reschedule", "restarting")
OVER = ("success", "failed", "skipped", "upstream_failed", "removed")


@each_row("state", [*WAITING, *OVER])
async def test_a_job_is_stopped_unless_its_task_waits(state: str) -> None:
    """A task that waits follows the job, or its next try will; the job with exactly that uid is deleted."""
    backend = holding(job())

    found = await swept(backend, state)

    expected = [(f"its task is {state}", True, "", "uid-digits")] if state in OVER else []
    assert [(each.why, each.stopped, each.error, each.job.ref.uid) for each in found] == expected
    assert backend.deleted == [each.job.ref for each in found]


@each_row(
    ("state", "why"),
    [
        ("none", "its task has no state: it was cleared, or reset by a scheduler"),
        (None, "its task instance is gone"),
    ],
)
async def test_the_job_of_a_task_without_a_state_is_stopped_after_the_grace_of_jobs_without_a_follower(
    state: str | None, why: str
) -> None:
    """A scheduler's failover resets running tasks, and a database that is restored lacks the newest runs.

    The first search notes the time on the job.
    """
    backend = holding(job(age=60 * 72))

    (finding,) = await swept(backend, state)

    assert (finding.stopped, finding.error, finding.why) == (False, "", why)
    assert backend.patches == [{"metadata": {"annotations": {UNFOLLOWED_ANNOTATION: NOW.isoformat()}}}]
    assert backend.jobs

    noted = {UNFOLLOWED_ANNOTATION: (NOW - timedelta(hours=25)).isoformat()}
    later = holding(job(age=60 * 72, annotations=noted))

    assert [finding.stopped for finding in await swept(later, state)] == [True]


async def test_looking_at_the_job_of_a_task_without_a_state_notes_nothing_on_it() -> None:
    backend = holding(job())

    (finding,) = await swept(backend, "none", stop=False)

    assert finding.why.startswith("its task has no state")
    assert backend.patches == []


LEFT = {
    "another installation's": job(owner={**OURS, "instance": "staging"}),
    "a copy of a job of ours, without our label": job(labels={}),
    "a pipeline's": job(owner={"instance": "prod", "ids": {"run": "4711", "task": "train"}}),
    "an owner that cannot be read": job(owner="{spoilt"),
    "an owner that is no map": job(owner="[1]"),
    "younger than the grace": job(age=9),
    "being deleted": job(deletionTimestamp="2026-11-20T11:59:00Z"),
    "only submitted by its task": job(annotations={LEAVE_RUNNING_ANNOTATION: "job"}),
    "left running by a last try that could not follow it": job(
        age=60 * 48, annotations={UNFOLLOWED_ANNOTATION: (NOW - timedelta(hours=23)).isoformat()}
    ),
    "succeeded": finished(job(clean_pod_policy="Running")),
    "failed": finished(job(clean_pod_policy="All"), "Failed"),
    "failed, and its pods are wanted": finished(job(annotations={LEAVE_RUNNING_ANNOTATION: "pods"}), "Failed"),
}


@pytest.mark.parametrize("left", LEFT.values(), ids=LEFT)
async def test_a_job_that_may_have_an_owner_is_left_alone(left: Manifest) -> None:
    backend = holding(left)
    backend.pods_stay = 1

    assert await swept(backend, None) == []
    assert (backend.deleted, backend.patches) == ([], [])


@pytest.mark.parametrize("mark", [(NOW - timedelta(hours=25)).isoformat(), "2026-11-18T10:00:00", "spoilt", ""])
async def test_a_job_that_could_not_be_followed_is_not_spared_for_ever(mark: str) -> None:
    """After a day it is stopped; an invalid mark does not count."""
    backend = holding(job(age=60 * 72, annotations={UNFOLLOWED_ANNOTATION: mark}))

    assert [finding.stopped for finding in await swept(backend)] == [True]


async def test_a_job_that_is_followed_again_loses_its_mark() -> None:
    """Else the next reset of its task, days later, would stop it at once."""
    backend = holding(job(age=60 * 72, annotations={UNFOLLOWED_ANNOTATION: (NOW - timedelta(hours=25)).isoformat()}))

    assert await swept(backend, "running") == []
    assert backend.patches == [{"metadata": {"annotations": {UNFOLLOWED_ANNOTATION: None}}}]


async def test_replicas_that_a_failed_job_left_running_are_stopped_and_its_story_stays() -> None:
    """The CRD's default policy leaves them running with their GPUs; with the job its failure's reason would be lost."""
    backend = holding(finished(job(), "Failed"))
    backend.pods_stay = 1

    (finding,) = await swept(backend)

    assert finding.stopped
    assert backend.patches == [PYTORCHJOB.STOP_RUNNING_PODS]
    assert backend.jobs


async def test_pods_left_running_by_an_ended_job_are_stopped_although_its_task_only_submitted_it() -> None:
    """It was wanted until its end."""
    backend = holding(finished(job(annotations={LEAVE_RUNNING_ANNOTATION: "job"}), "Failed"))
    backend.pods_stay = 1

    assert [finding.stopped for finding in await swept(backend, "success")] == [True]


async def test_a_job_of_a_task_that_waits_for_a_later_one_is_stopped() -> None:
    """As after a run that was deleted and created again while its job ran."""
    backend = holding(job("first", age=90), job("second", age=60))

    (finding,) = await swept(backend, "running")

    assert (finding.job.ref.name, finding.why) == ("first", "its task waits for the later job second")
    assert [name for _, name in backend.jobs] == ["second"]


@pytest.mark.parametrize(
    "owners",
    [[OURS, {**OURS, "instance": "staging"}], [{**OURS, "ids": {**IDS, "map_index": str(n)}} for n in range(2)]],
    ids=["another installation with the same ids, as a copied one", "two mapped tasks"],
)
async def test_a_task_does_not_wait_for_a_later_job_of_another_owner(owners: list[Any]) -> None:
    jobs = [job(name, age=age, owner=owner) for (name, age), owner in zip([("a", 90), ("b", 60)], owners, strict=True)]

    assert await swept(holding(*jobs), "running") == []


@each_row("spec", [None, {"runPolicy": {"cleanPodPolicy": ["None"]}}])
async def test_an_ended_job_whose_policy_cannot_be_read_is_one_whose_pods_may_run(spec: Any) -> None:
    """An object that somebody has edited; no other job is spared for that."""
    odd = {**finished(job("odd"), "Failed"), "spec": spec}
    backend = holding(odd, job("good"))
    backend.pods_stay = 1

    assert [(finding.job.ref.name, finding.stopped) for finding in await swept(backend)] == [
        ("odd", True),
        ("good", True),
    ]
    assert backend.patches == [PYTORCHJOB.STOP_RUNNING_PODS]
    assert [name for _, name in backend.jobs] == ["odd"]


async def test_without_an_answer_the_job_is_kept_and_the_report_says_so() -> None:
    """Nothing is deleted on a guess."""
    backend = holding(job())

    (finding,) = await swept(backend, ClusterUnavailable("connection refused"))

    assert (finding.why, finding.stopped) == ("", False)
    assert "connection refused" in finding.error
    assert backend.jobs


async def test_a_job_that_cannot_be_stopped_does_not_hide_the_next_one() -> None:
    backend = holding(job("a"), job("b"))
    backend.refusals["delete"] = [ClusterError("forbidden", code=403)]

    first, second = await swept(backend)

    assert (first.stopped, "forbidden" in first.error) == (False, True)
    assert (second.job.ref.name, second.stopped) == ("b", True)


@pytest.mark.parametrize("now", [finished(job()), job(annotations={LEAVE_RUNNING_ANNOTATION: "job"})])
async def test_an_orphan_that_ended_or_may_run_meanwhile_is_kept(now: Manifest) -> None:
    backend = holding(job())
    backend.server = Observation(job=now)

    (finding,) = await swept(backend)

    assert not backend.deleted
    assert not finding.stopped
    assert "it has ended" in finding.error


async def test_programs_get_a_finding_as_data() -> None:
    backend = holding(job())

    (finding,) = await swept(backend, stop=False)

    assert backend.jobs, "looking stops nothing"
    assert json.loads(json.dumps(finding.to_dict())) == {
        "kind": "PyTorchJob",
        "namespace": "team",
        "name": "digits",
        "uid": "uid-digits",
        "phase": "Running",
        "created_at": "2026-11-20T11:00:00+00:00",
        "instance": "prod",
        "owner": IDS,
        "why": "its task is failed",
        "stopped": False,
        "error": "",
    }


@pytest.mark.parametrize(("first", "second"), [(None, LeaveRunning.JOB), (LeaveRunning.JOB, None)])
async def test_the_newest_try_says_whether_its_job_may_run_unfollowed(
    first: LeaveRunning | None, second: LeaveRunning | None
) -> None:
    """The DAG's author may set `wait_for_completion` between two tries."""
    backend, store = ScriptedBackend(), MemoryStore()
    owner = Owner(instance="prod", ids=IDS, labels={})
    asked = TrainingJob.parse(name="digits", namespace="team", image="digits:1")
    for leave in (first, second):
        await ensure_submitted(backend, with_leave_running(asked, leave), owner=owner, store=store)

    assert [each.stopped for each in await swept(backend, "success")] == ([] if second else [True])
