"""Tests of the cache of one job and of what its followers get."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kubernetes.informer.cache import JobCache

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest

MADE, EARLIER = "2026-11-20T10:00:00Z", "2026-11-20T09:59:59Z"
TRAINS = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 2}}


def cache_of(kind: str, spec: Manifest, status: Manifest | None = None) -> JobCache:
    """Return the cache of a job."""
    meta = {"namespace": "team", "name": "digits", "uid": "u-1", "creationTimestamp": MADE}
    job = {"kind": kind, "metadata": meta, "spec": spec, "status": status or {}}
    cache = JobCache(JobRef.of(job))
    cache.set_job(job)
    return cache


async def test_a_job_that_goes_while_its_last_state_is_looked_at_is_reported_as_gone() -> None:
    """A slow follower gets the deletion, too."""
    cache = cache_of("PyTorchJob", {"pytorchReplicaSpecs": {}})
    observations = cache.observations()
    first = await anext(observations)

    cache.set_job(None)
    rest = [each async for each in observations]

    assert first.job is not None
    assert [each.job for each in rest] == [None]


@pytest.mark.parametrize(
    ("pods", "about"),
    [
        (0, ["uid=u-1", "kind=JobSet,involvedObject.name=digits", "kind=Job,involvedObject.name=digits-node-0"]),
        (2, []),
    ],
)
def test_events_of_the_controllers_are_selected_while_pods_are_missing(pods: int, about: list[str]) -> None:
    """For a TrainJob's pod, a quota's refusal is an event of the Job below it only."""
    cache = cache_of("TrainJob", TRAINS)
    for number in range(pods):
        cache.set_pod({"metadata": {"name": f"p-{number}", "uid": f"p-{number}"}, "spec": {}, "status": {}})

    assert cache.event_selectors() == [f"involvedObject.{subject}" for subject in about]


@pytest.mark.parametrize(("code", "master", "asked"), [(1, False, True), (1, True, False), (0, False, False)])
async def test_events_of_a_missing_master_are_selected_if_a_worker_gave_up(
    code: int, *, master: bool, asked: bool
) -> None:
    """The operator deletes the master's pod with the failed job; its events remain for an hour."""
    template = {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}
    roles = {name: {"replicas": 1, "template": template} for name in ("Master", "Worker")}
    failed = {"conditions": [{"type": "Failed", "status": "True"}]}
    cache = cache_of("PyTorchJob", {"pytorchReplicaSpecs": roles}, failed)
    ended = [{"name": "init-pytorch", "state": {"terminated": {"exitCode": code}}}]
    for name in ("digits-worker-0", *(("digits-master-0",) if master else ())):
        status = {"phase": "Failed", "initContainerStatuses": ended if "worker" in name else []}
        cache.set_pod({"metadata": {"name": name, "uid": name}, "spec": {"nodeName": "n"}, "status": status})

    assert ("involvedObject.kind=Pod,involvedObject.name=digits-master-0" in cache.event_selectors()) is asked


async def test_events_of_an_earlier_job_of_the_name_are_left_out() -> None:
    """Events of controllers are selected by name, which an earlier job may have had."""
    cache = cache_of("TrainJob", TRAINS)

    objects = {"old": {"metadata": {"creationTimestamp": EARLIER}}, "new": {"metadata": {"creationTimestamp": MADE}}}
    cache.set_events({**objects, "ours": {"reason": "NotApplied"}})

    observation = await anext(cache.observations())
    assert observation.events == [objects["new"], {"reason": "NotApplied"}]


async def test_a_pod_is_found_as_the_replica_that_the_jobs_status_says() -> None:
    """The name of the pod may not contain the replica."""
    role = {"type": "worker", "replicas": 1, "template": {"spec": {"containers": [{"name": "python"}]}}}
    task = {"type": "worker", "replicas": [{"name": "drawn-0"}]}
    cache = cache_of("PyTorchTrainingJob", {"replicaSpecs": [role]}, {"phase": "Running", "tasks": [task]})
    cache.set_pod({"metadata": {"name": "drawn-0", "uid": "p", "creationTimestamp": MADE}, "status": {}})

    assert await cache.pod("digits-worker-0") is not None
