"""Steps that are started again on the cluster, by the engine or by a person, when the job is there, going, or gone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kfp_cluster.engine_stand_in import Ended, EngineStandIn
from kfp_cluster.lab import new_run, owners, until
from kfp_cluster.step_pod import Try
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kubernetes.pods import has_ended

if TYPE_CHECKING:
    from kfp_cluster.lab import Lab

STUBBORN = 20
"""Seconds that a training takes to end which is told to."""


def test_a_person_who_retries_a_run_starts_no_second_training_beside_the_first(lab: Lab) -> None:
    """Kubeflow deletes the pod of the step first, and with it goes its job; what that leaves running is waited for.

    The object of a pod that has ended may stay for a moment: until the kubelet has said so to the API server.
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
    """Such as when the launcher could not bring the outputs to their store: the job is the run's by then."""
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


STOCK_ENGINES = [EngineStandIn(is_stock=True), EngineStandIn(is_stock=True, retries=2, same_name=False)]
PLAIN = EngineStandIn(is_stock=False, retries=2)


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("engine", STOCK_ENGINES)
def test_a_step_whose_pod_is_deleted_is_repeated_and_trains_alone(
    lab: Lab, engine: EngineStandIn, *, at_once: bool
) -> None:
    """Its job goes with the pod; the repeat waits until nothing of it runs, also under the first one's name."""
    run, pipeline = new_run("gone"), lab.pipeline(termination_grace_period_seconds=STUBBORN)
    attempt = engine.first(Try(run=run))
    first, ref = lab.running(attempt, pipeline)

    first.delete(at_once=at_once)
    until(
        "the end of the first pod", lambda: first.name not in [pod["metadata"]["name"] for pod in lab.objects("pods")]
    )
    again = engine.after(attempt, Ended.GONE)
    assert again is not None
    second = lab.start(again, pipeline)
    second.wait_for_notice(" was submitted: ")
    left = [pod["metadata"]["name"] for pod in lab.pods(ref) if not has_ended(pod)]
    job = JobRef.of(next(job for job in lab.jobs(run) if owners(job) == [second.uid]))
    lab.release(job)

    assert left == []
    assert second.wait() == 0, second.log()
    assert lab.ever_submitted(run) == {ref.uid, job.uid}


@pytest.mark.parametrize("engine", [*STOCK_ENGINES, PLAIN])
def test_a_job_that_cannot_succeed_is_trained_once(lab: Lab, engine: EngineStandIn) -> None:
    """Where the engine repeats the step, as it may if the pod goes just then, the same is told again."""
    run, pipeline = new_run("hopeless"), lab.pipeline(command=["python", "-c", "raise NotImplementedError('black')"])
    attempt = engine.first(Try(run=run))
    assert lab.start(attempt, pipeline).wait() == 1

    again = engine.after(attempt, Ended.FAILED)
    if again is None:
        again = replace(attempt, retry=attempt.retry, number=1)

    assert lab.start(again, pipeline).wait() == 1
    assert len(lab.ever_submitted(run)) == 1
