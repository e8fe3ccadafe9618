"""Steps that are started again on the cluster, by the engine or by a person, when the job is there, going, or gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.tenants import service_account
from kfp_cluster.lab import new_run, owners
from kfp_cluster.step_pod import Try
from kfp_cluster.stock_role import STOCK
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kubernetes.board.world import ENDED

if TYPE_CHECKING:
    from typing import Any

    from kfp_cluster.lab import Lab, Step

STUBBORN = 20
"""Seconds that a training takes to end which is told to."""


def watching_taken_away() -> list[dict[str, Any]]:
    """Return the stock Role without the right to watch pods."""
    rest = ["get", "list", "create", "delete", "patch"]
    return [{**rule, "verbs": rest} if "pods" in rule["resources"] else rule for rule in STOCK]


def running(lab: Lab, attempt: Try, pipeline: dict[str, Any] | None = None) -> tuple[Step, JobRef]:
    """Start a step and return it with its job, as soon as the training prints."""
    step = lab.start(attempt, pipeline)
    step.wait_for_line("waiting")
    return step, JobRef.of(lab.job(attempt.run))


def test_a_person_who_retries_a_run_starts_no_second_training_beside_the_first(lab: Lab) -> None:
    """Kubeflow deletes the pod of the step first, and with it goes its job; what that leaves running is waited for.

    The object of a pod that has ended may stay for a moment: until the kubelet has said so to the API server.
    """
    run, pipeline = new_run("person"), lab.pipeline(termination_grace_period_seconds=STUBBORN)
    first, ref = running(lab, Try(run=run), pipeline)
    first.kill()
    first.wait()

    first.remove()
    second = lab.start(Try(run=run), pipeline)
    second.wait_for_notice(" was submitted: ")
    left = [pod["metadata"]["name"] for pod in lab.pods(ref) if pod["status"].get("phase") not in ENDED]
    (job,) = lab.jobs(run)
    again = JobRef.of(job)
    lab.release(again)

    assert left == []
    assert second.wait() == 0, second.log()
    assert ref.name != again.name
    assert lab.ever_submitted(run) == {ref.uid, again.uid}


def test_a_person_who_retries_a_run_does_not_train_again_what_has_succeeded(lab: Lab) -> None:
    """Such as when the launcher could not bring the outputs to their store: the job is the run's by then."""
    run = new_run("uploads")
    first, ref = running(lab, Try(run=run))
    lab.release(ref)
    assert first.wait() == 0, first.log()
    belongs_to = owners(lab.job(run))

    first.remove()
    second = lab.start(Try(run=run))

    assert second.wait() == 0, second.log()
    assert belongs_to == owners(lab.job(run)) == [lab.controller(run)["uid"]]
    assert second.published()["parameters"]["job_name"] == ref.name
    assert lab.ever_submitted(run) == {ref.uid}
    lab.delete_run(run)
    lab.wait_until_gone(run)


def test_a_job_that_a_person_deletes_fails_its_step_and_is_not_made_again(lab: Lab) -> None:
    """The engine's retry says the same once more, from what the first try has noted on its pod."""
    run = new_run("unwanted")
    first, ref = running(lab, Try(run=run, retry=0))

    lab.delete_job(ref)
    codes = [first.wait(), lab.start(Try(run=run, retry=1)).wait()]

    assert codes == [1, 1]
    assert f"{ref} was deleted: somebody deleted it" in first.log()
    assert lab.ever_submitted(run) == {ref.uid}


def test_a_job_that_was_stopped_is_followed_by_the_next_attempt(lab: Lab) -> None:
    """Its object is gone; which attempt comes next is known all the same."""
    run, pipeline = new_run("late"), lab.pipeline(timeout=5)

    logs = []
    for retry in (0, 1):
        step = lab.start(Try(run=run, retry=retry), pipeline)
        step.wait()
        logs.append(step.log())

    assert ["timed out" in log for log in logs] == [True, True]
    assert [f", attempt {number}\n" in log for number, log in enumerate(logs, 1)] == [True, True]
    assert len(lab.ever_submitted(run)) == 2


def test_a_job_that_was_deleted_as_was_asked_is_not_trained_again(lab: Lab) -> None:
    """The engine repeats a step whose outputs its launcher could not bring to their store."""
    run = new_run("tidy")
    pipeline = lab.pipeline(command=["echo", "trained"], on_finish_action="delete_job")

    told = []
    for retry in (0, 1):
        step = lab.start(Try(run=run, retry=retry), pipeline)
        assert step.wait() == 0, step.log()
        told.append(step.published()["parameters"])
        lab.wait_until_gone(run)

    assert told[0] == told[1]
    assert len(lab.ever_submitted(run)) == 1


def test_a_step_that_may_not_watch_pods_leaves_no_job(lab: Lab) -> None:
    """Nobody would come for it: the task has no retries, and the pod's object stays."""
    run, account = new_run("blind"), "blind"
    service_account(lab.cluster, lab.namespace, watching_taken_away(), name=account)

    step = lab.start(Try(run=run), account=account)

    assert step.wait() == 1
    assert 'cannot watch resource "pods"' in step.log()
    lab.wait_until_gone(run)
    assert len(lab.ever_submitted(run)) == 1
