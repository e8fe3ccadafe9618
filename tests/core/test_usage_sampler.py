"""Tests of the requests to the metrics API for the usage of replicas. A stand-in answers, and refuses on demand."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pytest

from api_server_stand_in import stand_in_api_server
from core.test_queue import run
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.history.peak_usage import PeakUsage
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kubernetes import ClusterConfig
from ptjob_provider.core.kubernetes.client.http import shared_client
from ptjob_provider.core.kubernetes.informer.cache import JobCache
from ptjob_provider.core.kubernetes.informer.usage_sampler import UsageSampler
from ptjob_provider.core.kubernetes.inspector import ClusterInspector
from rendered import render
from rows import each_row

if TYPE_CHECKING:
    from api_server_stand_in import StandInApiServer
    from ptjob_provider.core.identity import Manifest

pytestmark = pytest.mark.skips_waits

INTERVAL = 0.05
OURS = {"labelSelector": "owner"}
METRICS = "/apis/metrics.k8s.io/v1beta1/namespaces/team/pods?labelSelector=owner"
"""Of the informer's pods, not of the whole namespace's."""


def running(name: str, *, phase: str = "Running") -> JobCache:
    """Return the cache of a job whose one pod runs."""
    world = JobCache(JobRef(kind="PyTorchJob", namespace="team", name=name, uid=f"uid-{name}"))
    meta = {"name": name, "namespace": "team", "uid": f"uid-{name}"}
    status = {"conditions": [{"type": "Running", "status": "True", "lastTransitionTime": "2026-11-20T12:00:00Z"}]}
    world.set_job({"kind": "PyTorchJob", "metadata": meta, "spec": {"pytorchReplicaSpecs": {}}, "status": status})
    meta = {"name": f"{name}-master-0", "namespace": "team", "uid": f"pod-{name}"}
    world.set_pod({"metadata": meta, "spec": {"nodeName": "n"}, "status": {"phase": phase}})
    return world


def metrics(name: str, **used: str) -> dict[str, Any]:
    """Return the metrics API's response for the pod of that job."""
    item = {"metadata": {"name": f"{name}-master-0", "namespace": "team"}, "containers": [{"usage": used}]}
    return {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": [item]}


async def looked(stand_in: StandInApiServer, *worlds: JobCache, requests: int) -> list[str]:
    """Sample these until this many requests have come; return the requested paths."""
    metering = UsageSampler("team", INTERVAL, lambda: OURS)
    for world in worlds:
        metering.update(world)
    async with shared_client(stand_in.config(attempts=6)) as client:
        await run(metering, client, until=lambda: len(stand_in.requests) >= requests)
    return [line.split()[1] for line in stand_in.requests]


async def test_a_thousand_jobs_cost_as_many_requests_as_one() -> None:
    """One request per round, for the pods of all of them, and none to a kubelet."""
    async with stand_in_api_server() as stand_in:
        asked = await looked(stand_in, *(running(f"j{n}") for n in range(1000)), requests=3)

    assert set(asked) == {METRICS}
    assert min(later - earlier for earlier, later in pairwise(stand_in.came_at)) > INTERVAL / 2


async def test_the_usage_of_a_replica_is_the_maximum_of_its_samples() -> None:
    """The maximum of all rounds, by the replica's name; null if nothing was measured."""
    world = running("digits")
    first, second = metrics("digits", cpu="500m", memory="1Mi"), metrics("digits", cpu="250m", memory="2Mi")

    async with stand_in_api_server((200, first), (200, second), (200, {"items": []})) as stand_in:
        await looked(stand_in, world, requests=4)

    (use,) = world.usage().values()
    assert list(world.usage()) == ["digits-master-0"]
    assert use == PeakUsage(peak_cpu=0.5, peak_memory=2 * 2**20, samples=2)


@pytest.mark.parametrize("bad", [403, 404, 503])
async def test_a_refused_request_loses_one_sample_only(bad: int) -> None:
    """One request per round, not six as for an important request; a restored right or server is used."""
    world = running("digits")

    async with stand_in_api_server(bad, bad, (200, metrics("digits", memory="1Mi"))) as stand_in:
        await looked(stand_in, world, requests=5)

    assert min(later - earlier for earlier, later in pairwise(stand_in.came_at)) > INTERVAL / 2
    assert world.usage()["digits-master-0"].peak_memory == 2**20


ODD = [
    {"items": ["digits-master-0"]},
    {"items": [{"metadata": "digits-master-0"}]},
    {"items": [{"metadata": {"name": "digits-master-0", "namespace": "team"}, "containers": 3}]},
    metrics("digits", memory="many"),
    metrics("digits", cpu="1e999999999"),
]


@each_row("odd", ODD)
async def test_an_odd_answer_loses_one_sample_only(odd: dict[str, Any]) -> None:
    world = running("digits")

    async with stand_in_api_server((200, odd), (200, metrics("digits", memory="1Mi"))) as stand_in:
        await looked(stand_in, world, requests=3)

    assert world.usage()["digits-master-0"].peak_memory == 2**20


async def test_no_metrics_are_requested_while_no_replica_runs() -> None:
    """Ten thousand jobs in a queue cost nothing; neither do jobs whose pods have ended, or without a follower.

    Pods that start later are sampled.
    """
    left = running("left")
    metering = UsageSampler("team", INTERVAL, lambda: OURS)
    metering.update(left)
    metering.drop(left)
    metering.update(running("ended", phase="Succeeded"))
    metering.update(JobCache(left.ref))

    async with stand_in_api_server() as stand_in, shared_client(stand_in.config()) as client:
        task = asyncio.create_task(metering.run(client))
        await asyncio.sleep(4 * INTERVAL)
        asked, goes_on = list(stand_in.requests), not task.done()
        metering.update(left)
        async with asyncio.timeout(60):
            while not stand_in.requests and not task.done():  # noqa: ASYNC110 - no notification
                await asyncio.sleep(0.01)
        task.cancel()

    assert (asked, goes_on) == ([], True)
    assert stand_in.requests


async def test_an_interval_of_zero_sends_no_request() -> None:
    async with stand_in_api_server() as stand_in, shared_client(stand_in.config()) as client:
        metering = UsageSampler("team", 0.0, lambda: OURS)
        metering.update(running("digits"))
        await metering.run(client)

    assert stand_in.requests == []


def test_an_interval_is_a_time() -> None:
    with pytest.raises(InvalidSpec, match=r"usage_interval: .* seconds, or 0 for never"):
        ClusterConfig(usage_interval=-1)


def digits() -> tuple[Manifest, Manifest]:
    """Return a job of one replica, and the list with its pod."""
    job = render(namespace="team", exact_name=True).manifest
    job["metadata"]["uid"] = "uid-digits"
    owner = {"kind": "PyTorchJob", "name": "digits", "uid": "uid-digits", "controller": True}
    meta = {"name": "digits-master-0", "namespace": "team", "uid": "p", "ownerReferences": [owner]}
    pod = {"metadata": meta, "spec": {"nodeName": "n", "containers": []}, "status": {"phase": "Running"}}
    return job, {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [pod]}


async def test_a_metrics_server_that_gives_its_list_no_version_is_read() -> None:
    """As from the usual metrics server; `ptjob top job` reads the job's pods from it alone."""
    job, pods = digits()

    async with stand_in_api_server((200, pods), (200, metrics("digits", cpu="250m", memory="64Mi"))) as stand_in:
        found = await ClusterInspector(stand_in.config()).usage(job)
        path, _, query = stand_in.requests[-1].split()[1].partition("?")

    assert path == "/apis/metrics.k8s.io/v1beta1/namespaces/team/pods"
    assert parse_qs(query) == {"labelSelector": ["training.kubeflow.org/job-name=digits"]}
    assert found.unknown == ""
    [use] = found.replicas
    assert (use.replica, use.cpu, use.memory) == ("digits-master-0", 0.25, 64 * 2**20)


@pytest.mark.parametrize("bad", [403, 404, 503])
async def test_a_single_look_does_not_retry_an_unavailable_metrics_api(bad: int) -> None:
    """One request is sent; the replica is shown without figures, with the reason."""
    job, pods = digits()

    async with stand_in_api_server((200, pods), *[bad] * 6) as stand_in:
        found = await ClusterInspector(stand_in.config(attempts=6)).usage(job)

    assert len(stand_in.requests) == 2
    assert "deploy/components/usage" in found.unknown
    [use] = found.replicas
    assert (use.replica, use.node, use.cpu, use.memory) == ("digits-master-0", "n", None, None)
