"""Tests of PyTorchTrainingJobs on a real API server; a scripted controller stands in for T9k's, which is not public."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from cluster_world import config_of
from kubernetes_backend.dry_run import dry_run, lost
from kubernetes_backend.t9k_stand_in import ScriptedT9kController, serve
from kubernetes_backend.trainjobs import Lab
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kubernetes.client.http import shared_client
from ptjob_provider.core.run.lookup import find_job
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.run.snapshot import look
from ptjob_provider.core.run.submit import stop_and_wait
from ptjob_provider.core.spec import TrainingJob
from same_fields import FIELDS, rendered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.boot import Cluster
    from ptjob_provider.core.identity import Manifest

KIND = "PyTorchTrainingJob"


@pytest.fixture(scope="module")
def platform(cluster: Cluster) -> Cluster:
    """Install the kind."""
    return serve(cluster)


@pytest.fixture
def lab(platform: Cluster, namespace: str) -> Lab:
    """Return a namespace in which its jobs run."""
    return Lab(platform, namespace, kind=KIND)


FIRST_FAILS = 'echo trained; [ "${HOSTNAME##*-}" = 0 ] || exit 0; echo no such class; exit 3'


@pytest.mark.parametrize(
    ("script", "end", "outcome"),
    [
        ("echo trained", ("Succeeded", ("Completed", "Done")), Outcome.SUCCEEDED),
        (FIRST_FAILS, ("Failed", ("Failed", "ReplicaFailed")), Outcome.FAILED),
    ],
    ids=["succeeds", "fails"],
)
async def test_a_job_is_followed_to_its_end(
    lab: Lab, script: str, end: tuple[str, tuple[str, str]], outcome: Outcome
) -> None:
    """The log is the first replica's; its pod name has letters that are not known before.

    T9k runs its TensorBoard, from fields that the server stores.
    """
    submission = await lab.submit(script, tensorboard={"logdir": "pvc://runs/logs", "image": "tb:1"})
    controller = ScriptedT9kController(lab.cluster, submission.ref)

    following = asyncio.create_task(lab.follow(submission))
    await asyncio.to_thread(controller.make_pods)
    await asyncio.to_thread(controller.wait_for_end)
    await asyncio.to_thread(controller.tell, end[0], end[1])
    conclusion = await following

    assert conclusion.outcome is outcome
    assert lab.lines[0] == "trained"
    if outcome is Outcome.FAILED:
        assert conclusion.diagnosis is not None
        assert "-worker-0 (rank 0) exited with code 3" in conclusion.diagnosis.summary
        assert "no such class" in conclusion.diagnosis.log_tail
    found = await find_job(lab.backend, lab.namespace, submission.ref.name)
    assert found["kind"] == KIND
    assert found["spec"]["tensorboardSpec"] == {"image": "tb:1", "trainingLogFilesets": ["t9k://pvc/runs/logs"]}
    await stop_and_wait(lab.backend, submission.ref)


async def test_the_ends_of_deleted_pods_are_shown_from_the_jobs_status(lab: Lab) -> None:
    """The result comes from the job's status, which is all that is left: nobody had followed the job."""
    submission = await lab.submit('[ "${HOSTNAME##*-}" = 0 ] || exit 3')
    controller = ScriptedT9kController(lab.cluster, submission.ref)

    await asyncio.to_thread(controller.make_pods)
    await asyncio.to_thread(controller.wait_for_end)
    await asyncio.to_thread(controller.clean_up)
    await asyncio.to_thread(controller.tell, "Failed", ("Failed", "ReplicaFailed"), restarts=1)
    seen = await look(lab.backend, lab.namespace, submission.ref.name)

    assert seen.diagnosis is not None
    assert "-worker-1 (rank 1) exited with code 3" in seen.diagnosis.summary
    assert seen.to_dict()["restarts"] == 1
    assert list(seen.pods) == []


def sayable(given: Mapping[str, Any]) -> Manifest | None:
    """Return the object of a job with this field; None if the kind does not support it."""
    try:
        return rendered(TrainingJob.parse(**given))
    except InvalidSpec:
        return None


async def test_the_platform_drops_no_field_of_a_rendered_job(platform: Cluster, namespace: str) -> None:
    whole = {"kind": KIND, "name": "digits", "image": "digits:1", "workers": 2, "namespace": namespace}
    elastic = {"elastic_policy": {"min_replicas": 1, "max_replicas": 3, "max_restarts": 2, "rdzv_backend": "c10d"}}
    values = [value for name, value in FIELDS.items() if name not in {"namespace", "manifest"}]
    fields = [{**whole, **value, "kind": KIND} for value in [*values, elastic]]
    jobs = [found for each in fields if (found := sayable(each)) is not None]

    async with shared_client(config_of(platform.layout.kubeconfig)) as client:
        dropped = [loss for each in jobs for loss in lost(each, await dry_run(client, each))]

    assert len(jobs) > 40
    assert dropped == []
