"""Tests of steps that the engine or a person retries while the job exists, is being deleted, or is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kfp_cluster.lab import new_run, owners, until
from kfp_cluster.step_pod import Try
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kubernetes.pods import has_ended

if TYPE_CHECKING:
    from kfp_cluster.lab import Lab

STUBBORN = 20
"""Seconds that the training takes to end after it is stopped."""


def test_a_person_who_retries_a_run_starts_no_second_training_beside_the_first(lab: Lab) -> None:
    """Kubeflow first deletes the step's pod, and with it the job; the retry waits for the job's pods to end.

    An ended pod may exist for another moment, until the kubelet has reported to the API server.
    """
    run, pipeline = new_run("person"), lab.pipeline(termination_grace_period_seconds=STUBBORN)
    first, ref = lab.running(Try(run=run), pipeline)
    first.kill()
    first.wait()

    first.remove()
    second = lab.start(Try(run=run), pipeline)
    second.wait_for_notice(" was submitted: ")
    left = [pod["metadata"]["name"] for pod in lab.pods(ref) if not has_ended(pod)]
    (job,) = lab.jobs(run)
    again = JobRef.of(job)
    lab.release(again)

    assert left == []
    assert second.wait() == 0, second.log()
    assert ref.name != again.name
    assert lab.ever_submitted(run) == {ref.uid, again.uid}


def test_a_person_who_retries_a_run_does_not_train_again_what_has_succeeded(lab: Lab) -> None:
    """For example, the launcher failed to upload the outputs: by then the run owns the job."""
    run = new_run("uploads")
    first, ref = lab.running(Try(run=run))
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


@pytest.mark.parametrize(
    ("first_try", "second_try", "at_once"),
    [({"number": 0}, {"number": 0}, False), ({"retry": 0, "number": 0}, {"retry": 1, "number": 1}, True)],
    ids=["under the same name", "as the next try"],
)
def test_a_step_whose_pod_is_deleted_is_repeated_and_trains_alone(
    lab: Lab, first_try: dict[str, int], second_try: dict[str, int], *, at_once: bool
) -> None:
    """The job is deleted with the pod; the retry waits until none of its pods runs, even if it has the same name.

    Argo 4.0.5 makes either in Kubeflow Pipelines 2.17: a race decides.
    """
    run, pipeline = new_run("gone"), lab.pipeline(termination_grace_period_seconds=STUBBORN)
    first, ref = lab.running(Try(run=run, **first_try), pipeline)

    first.delete(at_once=at_once)
    until(
        "the end of the first pod", lambda: first.name not in [pod["metadata"]["name"] for pod in lab.objects("pods")]
    )
    second = lab.start(Try(run=run, **second_try), pipeline)
    second.wait_for_notice(" was submitted: ")
    left = [pod["metadata"]["name"] for pod in lab.pods(ref) if not has_ended(pod)]
    job = JobRef.of(next(job for job in lab.jobs(run) if owners(job) == [second.uid]))
    lab.release(job)

    assert left == []
    assert second.wait() == 0, second.log()
    assert lab.ever_submitted(run) == {ref.uid, job.uid}


def test_a_job_that_cannot_succeed_is_trained_once(lab: Lab) -> None:
    """A retry, which `set_retry` asks for, reports the same failure."""
    run, pipeline = new_run("hopeless"), lab.pipeline(command=["python", "-c", "raise NotImplementedError('black')"])

    codes = [lab.start(Try(run=run, retry=number, number=number), pipeline).wait() for number in (0, 1)]

    assert codes == [1, 1]
    assert len(lab.ever_submitted(run)) == 1
