"""Tests of a job's life cycle: creation, conditions, names, pods, deletion."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ptjob_provider.core.errors import JobAlreadyExists, JobChanged, JobNotFound
from ptjob_provider.core.identity import JobRef
from worlds import STATE, condition, has_ended_with, held, is_running, terminations, types

if TYPE_CHECKING:
    from worlds import World

SLEEP = "import time; print('up'); time.sleep(600)"
OBEYS = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)); " + SLEEP
"""A container's first process gets SIGTERM only with a handler; otherwise it is killed after its grace period."""

IGNORES = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up')\n"


async def test_a_job_whose_master_succeeds_has_succeeded(world: World) -> None:
    """Conditions, times and counts are those that training-operator writes."""
    ref = await world.submit(world.job("ok", held("print('done')"), held(), **STATE))

    seen = await world.observe(ref, lambda one: condition(one.job, "Running") is not None)
    world.release()
    seen += await world.observe(ref, has_ended_with("ok-master-0"))

    job = await world.backend.get("PyTorchJob", world.namespace, "ok")
    assert JobRef.of(job) == ref
    assert types(job) == [("Created", "True"), ("Running", "False"), ("Succeeded", "True")]
    assert condition(job, "Succeeded")["reason"] == "PyTorchJobSucceeded"
    assert condition(job, "Succeeded")["message"] == "PyTorchJob ok is successfully completed."
    assert job["status"]["startTime"] <= job["status"]["completionTime"]
    assert job["status"]["replicaStatuses"]["Master"]["succeeded"] == 1
    assert terminations(seen, "ok-master-0")[0]["reason"] == "Completed"


async def test_pods_are_named_and_labelled_as_the_operator_does(world: World) -> None:
    """Pods can be found by name, label and owner."""
    ref = await world.submit(world.job("names", SLEEP, SLEEP, workers=2))

    seen = await world.observe(ref, lambda one: is_running(one, replicas=3))

    pods = {pod["metadata"]["name"]: pod for pod in seen[-1].pods}
    assert set(pods) == {"names-master-0", "names-worker-0", "names-worker-1"}
    labels = pods["names-worker-1"]["metadata"]["labels"]
    assert labels["training.kubeflow.org/job-name"] == "names"
    assert labels["training.kubeflow.org/replica-type"] == "worker"
    assert labels["training.kubeflow.org/replica-index"] == "1"
    assert pods["names-master-0"]["metadata"]["labels"]["training.kubeflow.org/job-role"] == "master"
    assert {pod["metadata"]["ownerReferences"][0]["uid"] for pod in pods.values()} == {ref.uid}
    assert {pod["status"]["phase"] for pod in pods.values()} == {"Running"}


async def test_a_name_is_taken_once(world: World) -> None:
    """Of many submissions under one name, exactly one creates a job; the others fail."""
    manifest = world.job("taken", SLEEP)

    results = await asyncio.gather(*(world.submit(manifest) for _ in range(5)), return_exceptions=True)

    created = [result for result in results if isinstance(result, JobRef)]
    assert len(created) == 1
    assert [type(result) for result in results if result not in created] == [JobAlreadyExists] * 4


async def test_a_finished_job_keeps_its_name_until_it_is_deleted(world: World) -> None:
    """A new job does not replace one that somebody may still read."""
    ref, _ = await world.run(world.job("again", "pass"))

    with pytest.raises(JobAlreadyExists):
        await world.submit(world.job("again", "pass"))
    await world.backend.delete(ref)
    await world.observe(ref, lambda one: one.job is None)
    second, _ = await world.run(world.job("again", "pass"))

    assert second.uid != ref.uid


async def test_jobs_are_listed_by_their_labels(world: World) -> None:
    """Only the jobs that carry all labels, oldest first."""
    for name, labels in (("a-one", {"team": "a"}), ("b-two", {"team": "a", "run": "7"}), ("c-three", {"team": "b"})):
        manifest = world.job(name, SLEEP)
        await world.submit({**manifest, "metadata": {**manifest["metadata"], "labels": labels}})

    team = await world.backend.list("PyTorchJob", world.namespace, {"team": "a"})
    run = await world.backend.list("PyTorchJob", world.namespace, {"team": "a", "run": "7"})

    assert [job["metadata"]["name"] for job in team] == ["a-one", "b-two"]
    assert [job["metadata"]["name"] for job in run] == ["b-two"]


async def test_a_job_that_does_not_exist_is_not_found(world: World) -> None:
    """Reading and changing it fail; deleting it succeeds."""
    ref = JobRef(kind="PyTorchJob", namespace=world.namespace, name="nobody", uid="0")

    with pytest.raises(JobNotFound):
        await world.backend.get("PyTorchJob", world.namespace, "nobody")
    with pytest.raises(JobNotFound):
        await world.backend.patch(ref, {"metadata": {"annotations": {"a": "b"}}})
    await world.backend.delete(ref)

    assert await world.backend.pods_gone(ref)
    assert [one.job async for one in world.backend.watch(ref)] == [None]


async def test_an_annotation_is_merged_and_seen(world: World) -> None:
    """A patch changes only the fields that it has, and a watcher sees the change."""
    ref = await world.submit(world.job("noted", SLEEP))
    await world.backend.patch(ref, {"metadata": {"annotations": {"first": "1", "second": "2"}}})

    await world.backend.patch(ref, {"metadata": {"annotations": {"first": None, "third": "3"}}})

    seen = await world.observe(ref, lambda one: "third" in (one.job["metadata"].get("annotations") or {}))
    assert seen[-1].job["metadata"]["annotations"] == {"second": "2", "third": "3"}
    assert seen[-1].job["metadata"]["name"] == "noted"


async def test_a_patch_of_an_earlier_job_changes_nothing(world: World) -> None:
    """The uid decides: a job that has the name now may be somebody else's."""
    ref = await world.submit(world.job("mine", SLEEP))
    stranger = JobRef(kind=ref.kind, namespace=ref.namespace, name=ref.name, uid="another")

    with pytest.raises(JobNotFound):
        await world.backend.patch(stranger, {"metadata": {"annotations": {"a": "b"}}})
    await world.backend.delete(stranger)

    job = await world.backend.get("PyTorchJob", world.namespace, "mine")
    assert "annotations" not in job["metadata"]
    assert "deletionTimestamp" not in job["metadata"]


async def test_deleting_a_running_job_ends_its_processes(world: World) -> None:
    """Nothing runs any more, the name is free, and a watcher has seen the deletion."""
    ref = await world.submit(world.job("deleted", OBEYS, OBEYS))
    for pod in ("deleted-master-0", "deleted-worker-0"):
        await world.line(ref, pod, "up")
    await world.observe(ref, lambda one: is_running(one, replicas=2))
    watching = asyncio.create_task(world.observe(ref, lambda one: one.job is None))

    await world.backend.delete(ref)
    await world.gone(ref)

    assert (await watching)[-1].job is None
    with pytest.raises(JobNotFound):
        await world.backend.get("PyTorchJob", world.namespace, "deleted")
    await world.backend.delete(ref)


async def test_a_job_that_has_changed_since_it_was_read_is_not_deleted(world: World) -> None:
    """A read shows the job and its pods without a watch, in a version for which a deletion can ask."""
    ref = await world.submit(world.job("changing", held("print('done')"), **STATE))
    await world.observe(ref, lambda one: is_running(one, replicas=1))
    before = await world.backend.read(ref)
    assert before.job is not None
    world.release()
    await world.observe(ref, has_ended_with("changing-master-0"))

    with pytest.raises(JobChanged):
        await world.backend.delete(ref, version=before.job["metadata"]["resourceVersion"])

    after = await world.backend.read(ref)
    assert after.job is not None
    assert [pod["status"]["phase"] for pod in after.pods] == ["Succeeded"]
    await world.backend.delete(ref, version=after.job["metadata"]["resourceVersion"])
    await world.gone(ref)


async def test_a_process_that_ignores_sigterm_is_killed(world: World) -> None:
    ref = await world.submit(world.job("stubborn", IGNORES + "import time; time.sleep(600)"))
    await world.line(ref, "stubborn-master-0", "up")

    await world.backend.delete(ref)

    await world.gone(ref)


async def test_a_job_that_is_being_deleted_still_has_its_name(world: World) -> None:
    """A new job never starts while the old one's processes run."""
    pod = {**STATE["pod"], "terminationGracePeriodSeconds": 100}
    ref = await world.submit(world.job("slow", IGNORES + held(), container=STATE["container"], pod=pod))
    await world.line(ref, "slow-master-0", "up")

    with world.without_kill(ref):
        await world.backend.delete(ref)

        assert not await world.backend.pods_gone(ref)
        with pytest.raises(JobAlreadyExists):
            await world.submit(world.job("slow", "pass"))
    world.release()


async def test_a_job_is_gone_after_its_time_to_live(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is counted from the job's end."""
    monkeypatch.setattr("ptjob_provider.core.local.store._LEAST_TTL", 1)
    ref, _ = await world.run(world.job("mayfly", "pass", ttlSecondsAfterFinished=5))
    await world.backend.get("PyTorchJob", world.namespace, "mayfly")

    seen = await world.observe(ref, lambda one: one.job is None)

    assert seen[-1].job is None
    with pytest.raises(JobNotFound):
        await world.backend.get("PyTorchJob", world.namespace, "mayfly")
