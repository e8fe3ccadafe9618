"""PyTorchTrainingJobs on a real API server: T9k's controller is not public, so a scripted one makes its real pods."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from cluster.images import INIT_IMAGE
from cluster.tenants import service_account
from cluster_world import PATIENCE, config_of
from fakes import ListSink, MemoryStore
from kubernetes_backend.dry_run import dry_run, lost
from kubernetes_backend.t9k_stand_in import ScriptedT9kController, serve
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.kubernetes.client.http import shared_client
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.lookup import find_job
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.run.snapshot import look
from ptjob_provider.core.run.submit import ensure_submitted, stop_and_wait
from ptjob_provider.core.spec import TrainingJob
from rbac import rules_of_kinds
from recorded import OWNER
from same_fields import FIELDS, rendered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.boot import Cluster
    from ptjob_provider.core.identity import Manifest


@pytest.fixture(scope="module")
def platform(cluster: Cluster) -> Cluster:
    """Have the kind served."""
    return serve(cluster)


def job(namespace: str, script: str, **fields: Any) -> TrainingJob:
    """Return a job of two replicas that run a shell script."""
    command = ["sh", "-c", script]
    given = {"name": "digits", "kind": "PyTorchTrainingJob", "image": INIT_IMAGE, "command": command, "workers": 2}
    return TrainingJob.parse(**{**given, "namespace": namespace, **fields})


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
    platform: Cluster, namespace: str, script: str, end: tuple[str, tuple[str, str]], outcome: Outcome
) -> None:
    """Its log is that of the first replica, whose pod has letters in its name that nobody knew before.

    Its TensorBoard is T9k's to run, by words that the server keeps.
    """
    backend, sink = KubernetesBackend(config_of(service_account(platform, namespace, rules_of_kinds()))), ListSink()
    asked = job(namespace, script, tensorboard={"logdir": "pvc://runs/logs", "image": "tb:1"})
    submission = await ensure_submitted(backend, asked, owner=OWNER, store=MemoryStore())
    controller = ScriptedT9kController(platform, submission.ref)

    async with asyncio.timeout(2 * PATIENCE):
        following = asyncio.create_task(follow(backend, submission, sink=sink))
        await asyncio.to_thread(controller.make_pods)
        await asyncio.to_thread(controller.wait_for_end)
        await asyncio.to_thread(controller.tell, end[0], end[1])
        conclusion = await following

    assert conclusion.outcome is outcome
    assert sink.lines[0] == "trained"
    if outcome is Outcome.FAILED:
        assert conclusion.diagnosis is not None
        assert "-worker-0 (rank 0) exited with code 3" in conclusion.diagnosis.summary
        assert "no such class" in conclusion.diagnosis.log_tail
    found = await find_job(backend, namespace, submission.ref.name)
    assert found["kind"] == "PyTorchTrainingJob"
    assert found["spec"]["tensorboardSpec"] == {"image": "tb:1", "trainingLogFilesets": ["t9k://pvc/runs/logs"]}
    await stop_and_wait(backend, submission.ref)


async def test_who_looks_when_the_pods_are_gone_is_told_how_they_ended(platform: Cluster, namespace: str) -> None:
    """By the job's status, which is all that is left: nobody had followed it."""
    backend = KubernetesBackend(config_of(service_account(platform, namespace, rules_of_kinds())))
    script = '[ "${HOSTNAME##*-}" = 0 ] || exit 3'
    submission = await ensure_submitted(backend, job(namespace, script), owner=OWNER, store=MemoryStore())
    controller = ScriptedT9kController(platform, submission.ref)

    await asyncio.to_thread(controller.make_pods)
    await asyncio.to_thread(controller.wait_for_end)
    await asyncio.to_thread(controller.clean_up)
    await asyncio.to_thread(controller.tell, "Failed", ("Failed", "ReplicaFailed"), restarts=1)
    seen = await look(backend, namespace, submission.ref.name)

    assert seen.diagnosis is not None
    assert "-worker-1 (rank 1) exited with code 3" in seen.diagnosis.summary
    assert seen.to_dict()["restarts"] == 1
    assert list(seen.pods) == []


KIND = "PyTorchTrainingJob"


def sayable(given: Mapping[str, Any]) -> Manifest | None:
    """Return the object of a job with this field; None if the kind has no place for it."""
    try:
        return rendered(TrainingJob.parse(**given))
    except InvalidSpec:
        return None


async def test_the_platform_knows_every_word_that_a_job_is_said_with(platform: Cluster, namespace: str) -> None:
    """And keeps it."""
    whole = {"kind": KIND, "name": "digits", "image": "digits:1", "workers": 2, "namespace": namespace}
    elastic = {"elastic_policy": {"min_replicas": 1, "max_replicas": 3, "max_restarts": 2, "rdzv_backend": "c10d"}}
    values = [value for name, value in FIELDS.items() if name not in {"namespace", "manifest"}]
    fields = [{**whole, **value, "kind": KIND} for value in [*values, elastic]]
    jobs = [found for each in fields if (found := sayable(each)) is not None]

    async with shared_client(config_of(platform.layout.kubeconfig)) as client:
        dropped = [loss for each in jobs for loss in lost(each, await dry_run(client, each))]

    assert len(jobs) > 40
    assert dropped == []
