"""Test of a PyTorchTrainingJob on a real API server; a scripted controller stands in for T9k's, which is not public."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kubernetes_backend.t9k_stand_in import ScriptedT9kController, serve
from kubernetes_backend.trainjobs import Lab
from ptjob_provider.core.run.lookup import find_job
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.run.submit import stop_and_wait

if TYPE_CHECKING:
    from cluster.boot import Cluster

KIND = "PyTorchTrainingJob"


@pytest.fixture
def lab(cluster: Cluster, namespace: str) -> Lab:
    """Return a namespace in which its jobs run."""
    return Lab(serve(cluster), namespace, kind=KIND)


FIRST_FAILS = 'echo trained; [ "${HOSTNAME##*-}" = 0 ] || exit 0; echo no such class; exit 3'


async def test_a_job_is_followed_to_its_end(lab: Lab) -> None:
    """The log is the first replica's; its pod name has letters that are not known before.

    T9k runs its TensorBoard, from fields that the server stores.
    """
    submission = await lab.submit(FIRST_FAILS, tensorboard={"logdir": "pvc://runs/logs", "image": "tb:1"})
    controller = ScriptedT9kController(lab.cluster, submission.ref)

    following = asyncio.create_task(lab.follow(submission))
    await asyncio.to_thread(controller.make_pods)
    await asyncio.to_thread(controller.wait_for_end)
    await asyncio.to_thread(controller.tell, "Failed", ("Failed", "ReplicaFailed"))
    conclusion = await following

    assert conclusion.outcome is Outcome.FAILED
    assert lab.lines[0] == "trained"
    assert conclusion.diagnosis is not None
    assert "-worker-0 (rank 0) exited with code 3" in conclusion.diagnosis.summary
    assert "no such class" in conclusion.diagnosis.log_tail
    found = await find_job(lab.backend, lab.namespace, submission.ref.name)
    assert found["kind"] == KIND
    assert found["spec"]["tensorboardSpec"] == {"image": "tb:1", "trainingLogFilesets": ["t9k://pvc/runs/logs"]}
    await stop_and_wait(lab.backend, submission.ref)
