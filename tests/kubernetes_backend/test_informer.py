"""Tests of a namespace's shared watch: late subscribers, and jobs without our label."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import many_jobs
from benchmarks.apiserver import path_of, reached
from ptjob_provider.core.identity import MANAGED_LABEL, JobRef
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.kubernetes.informer import WatchScope
from ptjob_provider.core.shared import open_keys
from ptjob_provider.core.status import JobPhase

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from benchmarks.apiserver import ApiServer
    from cluster.boot import Cluster
    from ptjob_provider.core.backend import Observation
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes import KubernetesBackend

PATIENCE = 600.0


@pytest.fixture
async def server(cluster: Cluster) -> AsyncIterator[ApiServer]:
    """Return the API server, for the test's own changes."""
    async with reached(cluster.layout.kubeconfig) as found:
        yield found


def foreign(namespace: str, number: int) -> Manifest:
    """Return a job without our labels."""
    manifest = many_jobs.suspended_job(namespace, number)
    for labelled in (manifest, *(role["template"] for role in manifest["spec"]["pytorchReplicaSpecs"].values())):
        labelled["metadata"]["labels"].pop(MANAGED_LABEL, None)
    return manifest


def pod_of(job: Manifest) -> Manifest:
    """Return a pod of the job as the operator creates it; a scheduling gate keeps it from any node."""
    meta = job["metadata"]
    owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {
        "metadata": {
            "name": f"{meta['name']}-master-0",
            "labels": {"training.kubeflow.org/job-name": meta["name"]},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {
            "containers": [{"name": "pytorch", "image": "example.org/none"}],
            "schedulingGates": [{"name": "example.org/never"}],
        },
    }


async def until(backend: KubernetesBackend, job: Manifest, holds: Callable[[Observation], bool]) -> Observation:
    """Return the first observation that meets the condition."""
    async with asyncio.timeout(PATIENCE), aclosing(backend.watch(JobRef.of(job))) as watch:
        async for seen in watch:
            if holds(seen):
                return seen
    raise AssertionError("the watch ended before that was seen")


def phase(seen: Observation) -> JobPhase | None:
    return PYTORCHJOB.read_status(seen.job).phase if seen.job else None


def boards() -> list[Any]:
    """Return the watch scopes that are open on this loop."""
    return [(key.name, key.ours) for key in open_keys() if isinstance(key, WatchScope)]


async def test_one_job_is_watched_by_its_name_and_many_together(
    backend: KubernetesBackend, server: ApiServer, namespace: str
) -> None:
    """A worker or a user does not list a namespace of ten thousand jobs for one job."""
    jobs = await many_jobs.create(server, namespace, [many_jobs.suspended_job(namespace, n) for n in range(20)])

    async with asyncio.timeout(PATIENCE), aclosing(backend.watch(JobRef.of(jobs[0]))) as first:
        await anext(first)
        alone = boards()
        async with asyncio.TaskGroup() as tasks:
            seen = [tasks.create_task(until(backend, job, phase)) for job in jobs]  # type: ignore[arg-type]
        together = boards()

    assert alone == [(jobs[0]["metadata"]["name"], True)]
    assert set(together) == {*alone, ("", True)}
    assert {phase(task.result()) for task in seen} == {JobPhase.SUSPENDED}


async def test_jobs_that_are_not_ours_share_a_watch_of_their_own(
    backend: KubernetesBackend, server: ApiServer, namespace: str
) -> None:
    """A sensor follows jobs that others have submitted; it sees their pods and changes as their owner does."""
    made = [many_jobs.suspended_job(namespace, 0), *(foreign(namespace, n) for n in range(1, 6))]
    ours, *others = await many_jobs.create(server, namespace, made)

    watched = set()
    async with aclosing(backend.watch(JobRef.of(ours))) as watch:
        await anext(watch)
        async with asyncio.TaskGroup() as tasks:
            ends = [
                tasks.create_task(
                    until(backend, job, lambda seen: bool(phase(seen) is JobPhase.SUCCEEDED and seen.pods))
                )
                for job in others
            ]
            for job in others:
                await until(backend, job, lambda _: True)
                watched |= set(boards())  # a watch is closed some time after its last follower has left
                await server.request("POST", f"/api/v1/namespaces/{namespace}/pods", body=pod_of(job))
                await server.set_status(job, many_jobs.conditions("Created", "Succeeded"))
        watched |= set(boards())

    assert all(task.done() for task in ends)
    assert ("", False) in watched
    assert len(watched) == 3


async def test_a_job_that_loses_our_label_is_not_taken_for_gone(
    backend: KubernetesBackend, server: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch reports that it left the selection as if it were deleted; from then on, it is read by its name."""
    monkeypatch.setattr("ptjob_provider.core.kubernetes.informer.informer._UNLABELLED_INTERVAL", 0.2)
    beside, job = await many_jobs.create(server, namespace, [many_jobs.suspended_job(namespace, n) for n in range(2)])

    async with aclosing(backend.watch(JobRef.of(beside))) as watch, asyncio.TaskGroup() as tasks:
        await anext(watch)
        end = tasks.create_task(until(backend, job, lambda seen: phase(seen) in {None, JobPhase.SUCCEEDED}))
        await until(backend, job, lambda _: True)
        unlabelled = {"metadata": {"labels": {MANAGED_LABEL: None}}}
        await server.patch(path_of(job), unlabelled)
        await asyncio.sleep(1)
        await server.set_status(job, many_jobs.conditions("Created", "Succeeded"))

    assert phase(end.result()) is JobPhase.SUCCEEDED
