"""What is asked about the use of replicas, and how often. A stand-in answers: it counts, and refuses on demand."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pytest

from api_server_stand_in import stand_in_api_server
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kubernetes import ClusterConfig
from ptjob_provider.core.kubernetes.board.metering import Metering
from ptjob_provider.core.kubernetes.board.world import World
from ptjob_provider.core.kubernetes.client import lease
from ptjob_provider.core.kubernetes.site import ClusterSite
from ptjob_provider.core.kubernetes.usage import asked_in
from ptjob_provider.core.measured import Use

if TYPE_CHECKING:
    from api_server_stand_in import StandInApiServer

INTERVAL = 0.05
OURS = {"labelSelector": "owner"}
KUBELET, OTHER = (f"/api/v1/nodes/{node}/proxy/stats/summary" for node in "no")
METRICS = "/apis/metrics.k8s.io/v1beta1/namespaces/team/pods?labelSelector=owner"
"""Of the board's pods, not of the whole namespace's."""


def running(name: str, *, node: str = "n", phase: str = "Running") -> World:
    """Return the world of a job whose one pod runs."""
    world = World(JobRef(kind="PyTorchJob", namespace="team", name=name, uid=f"uid-{name}"))
    condition = {"type": "Running", "status": "True", "lastTransitionTime": "2026-11-20T12:00:00Z"}
    world.show_job(
        {
            "kind": "PyTorchJob",
            "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}"},
            "spec": {"pytorchReplicaSpecs": {}},
            "status": {"conditions": [condition]},
        }
    )
    meta = {"name": f"{name}-master-0", "namespace": "team", "uid": f"pod-{name}"}
    world.show_pod({"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": phase}})
    return world


def summary(name: str, received: int) -> dict[str, Any]:
    """Return what a kubelet says of the pod of that job."""
    memory = {"workingSetBytes": 2**20}
    pod = {"podRef": {"name": f"{name}-master-0", "namespace": "team"}, "memory": memory}
    return {"pods": [pod | {"network": {"rxBytes": received, "txBytes": 1}}]}


async def looked(stand_in: StandInApiServer, *worlds: World, requests: int) -> list[str]:
    """Look at these until so many requests came, and for four rounds more; return the paths that were asked for."""
    metering = Metering("team", INTERVAL, lambda: OURS)
    for world in worlds:
        metering.look_at(world)
    async with lease(stand_in.config(attempts=6)) as client:
        task = asyncio.create_task(metering.run(client))
        async with asyncio.timeout(60):
            while len(stand_in.requests) < requests and not task.done():  # noqa: ASYNC110 - the stand-in counts and tells nobody
                await asyncio.sleep(0.01)
        await asyncio.sleep(4 * INTERVAL)
        if not task.done():
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    return [line.split()[1] for line in stand_in.requests]


async def test_a_thousand_jobs_cost_what_one_costs() -> None:
    """One request a round, for the one node on which they all run."""
    async with stand_in_api_server() as stand_in:
        asked = await looked(stand_in, *(running(f"j{n}") for n in range(1000)), requests=1)

    assert set(asked) == {"/api/v1/nodes/n/proxy/stats/summary"}
    assert len(asked) < 10


async def test_what_is_told_is_the_replicas_use() -> None:
    """The most of all rounds, by the replica's name."""
    world = running("digits")

    async with stand_in_api_server((200, summary("digits", 10)), (200, summary("digits", 30))) as stand_in:
        await looked(stand_in, world, requests=2)

    (use,) = world.used().values()
    assert list(world.used()) == ["digits-master-0"]
    assert use == Use(peak_memory=2**20, received=30, sent=1, samples=2)


async def test_where_nobody_may_be_asked_it_is_asked_once(caplog: pytest.LogCaptureFixture) -> None:
    """Two requests in a board's life, and a line for who debugs; the job loses nothing."""
    caplog.set_level(logging.DEBUG, logger="ptjob_provider")
    world = running("digits")

    async with stand_in_api_server(403, 403) as stand_in:
        asked = await looked(stand_in, world, requests=2)

    assert asked == [KUBELET, METRICS]
    assert world.used() == {}
    told = [record for record in caplog.records if "will not tell" in record.message]
    assert [record.levelno for record in told] == [logging.DEBUG, logging.DEBUG]


async def test_a_server_that_is_away_is_asked_once_a_round() -> None:
    """Not six times, as one that matters is, nor is the other whom it leaves to answer; both are asked again."""
    async with stand_in_api_server(*[503] * 100) as stand_in:
        asked = await looked(stand_in, running("digits"), requests=4)

    for came in (stand_in.came_at[::2], stand_in.came_at[1::2]):
        assert min(later - earlier for earlier, later in pairwise(came)) > INTERVAL / 2
    assert (set(asked[::2]), set(asked[1::2])) == ({KUBELET}, {METRICS})


def metrics(name: str) -> dict[str, Any]:
    """Return what the metrics API says of the pod of that job."""
    item = {"metadata": {"name": f"{name}-master-0", "namespace": "team"}}
    usage = [{"usage": {"cpu": "500m", "memory": "1Mi"}}]
    return {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": [item | {"containers": usage}]}


@pytest.mark.parametrize("bad", [403, 404, 503])
async def test_where_a_kubelet_says_nothing_the_metrics_api_tells_in_the_same_look(bad: int) -> None:
    """A job that ends before the next look has figures, too; no second kubelet is asked, two requests are enough."""
    worlds = [running("one", node="n"), running("two", node="o")]

    async with stand_in_api_server(bad, (200, metrics("two"))) as stand_in:
        asked = await looked(stand_in, *worlds, requests=2)

    assert asked[:2] == [KUBELET, METRICS]
    assert worlds[1].used()["two-master-0"].peak_cpu == 0.5


async def test_kubelets_that_may_not_be_asked_are_asked_once() -> None:
    """One of them speaks for all."""
    worlds = [running("one", node="n"), running("two", node="o")]

    async with stand_in_api_server(403) as stand_in:
        asked = await looked(stand_in, *worlds, requests=3)

    assert asked[0] == KUBELET
    assert set(asked[1:]) == {METRICS}


async def test_of_two_kubelets_the_one_that_answers_not_is_asked_first_in_turn() -> None:
    """So that the metrics API tells of its pods in every second look; a node that has gone is no refusal."""
    worlds = [running("one", node="n"), running("two", node="o")]

    async with stand_in_api_server(200, 404, 404, (200, metrics("two"))) as stand_in:
        asked = await looked(stand_in, *worlds, requests=4)

    assert asked[:4] == [KUBELET, OTHER, OTHER, METRICS]
    assert worlds[1].used()["two-master-0"].peak_cpu == 0.5


async def test_a_node_that_has_gone_does_not_keep_the_other_from_being_asked() -> None:
    """Also where there is no metrics API."""
    worlds = [running("one", node="n"), running("two", node="o")]

    async with stand_in_api_server(404, 403, 404, (200, summary("one", 30))) as stand_in:
        asked = await looked(stand_in, *worlds, requests=4)

    assert asked[:4] == [KUBELET, METRICS, OTHER, KUBELET]
    assert worlds[0].used()["one-master-0"].received == 30


ODD = [
    {"pods": [{"podRef": None}, {"memory": {"workingSetBytes": 1}}]},
    {"pods": ["digits-master-0"]},
    {"pods": [{"podRef": "digits-master-0"}]},
    {"pods": [{"podRef": {"name": "digits-master-0", "namespace": "team"}, "memory": {"workingSetBytes": "many"}}]},
]


@pytest.mark.parametrize("odd", ODD)
async def test_an_odd_answer_costs_a_look_and_nothing_else(odd: dict[str, Any]) -> None:
    """The next one is read."""
    world = running("digits")

    async with stand_in_api_server((200, odd), (200, summary("digits", 30))) as stand_in:
        await looked(stand_in, world, requests=2)

    assert world.used()["digits-master-0"].received == 30


async def test_kubelets_take_turns_beside_the_metrics_api() -> None:
    """Two requests a round, however many nodes there are."""
    worlds = [running(f"j{n}", node=f"n{n}") for n in range(4)]

    async with stand_in_api_server() as stand_in:
        asked = await looked(stand_in, *worlds, requests=8)

    assert asked[:8:2] == [METRICS] * 4
    assert [path.split("/")[4] for path in asked[1:8:2]] == ["n0", "n1", "n2", "n3"]


async def test_nothing_is_asked_while_nothing_runs() -> None:
    """Ten thousand jobs in a queue cost nothing; neither do those whose pods have ended, or whom nobody follows.

    What runs later is looked at.
    """
    left = running("left")
    metering = Metering("team", INTERVAL, lambda: OURS)
    metering.look_at(left)
    metering.drop(left)
    metering.look_at(running("ended", phase="Succeeded"))
    suspended = World(left.ref)
    metering.look_at(suspended)

    async with stand_in_api_server() as stand_in, lease(stand_in.config()) as client:
        task = asyncio.create_task(metering.run(client))
        await asyncio.sleep(4 * INTERVAL)
        asked, goes_on = list(stand_in.requests), not task.done()
        metering.look_at(left)
        async with asyncio.timeout(60):
            while not stand_in.requests and not task.done():  # noqa: ASYNC110 - the stand-in tells nobody
                await asyncio.sleep(0.01)
        task.cancel()

    assert (asked, goes_on) == ([], True)
    assert stand_in.requests


async def test_whoever_wants_no_measuring_has_none() -> None:
    """An interval of 0 ends it before it begins."""
    async with stand_in_api_server() as stand_in, lease(stand_in.config()) as client:
        metering = Metering("team", 0.0, lambda: OURS)
        metering.look_at(running("digits"))
        await metering.run(client)

    assert stand_in.requests == []


def test_an_interval_is_a_time() -> None:
    """Named, with what is allowed."""
    with pytest.raises(InvalidSpec, match=r"usage_interval: .* seconds, or 0 for never"):
        ClusterConfig(usage_interval=-1)


async def test_a_metrics_server_that_gives_its_list_no_version_is_read() -> None:
    """As the usual one does; `ptjob top job` asks it where kubelets may not be asked, for the job's pods alone."""
    template = {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}
    meta = {"name": "digits", "namespace": "team", "uid": "uid-digits"}
    specs = {"Master": {"replicas": 1, "template": template}}
    job = {
        "kind": "PyTorchJob",
        "apiVersion": "kubeflow.org/v1",
        "metadata": meta,
        "spec": {"pytorchReplicaSpecs": specs},
    }
    owner = {"kind": "PyTorchJob", "name": "digits", "uid": "uid-digits", "controller": True}
    pod = {
        "metadata": {"name": "digits-master-0", "namespace": "team", "uid": "p", "ownerReferences": [owner]},
        "spec": {"nodeName": "n", **template["spec"]},
        "status": {"phase": "Running"},
    }
    pods = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [pod]}
    usage = [{"name": "pytorch", "usage": {"cpu": "250m", "memory": "64Mi"}}]
    measured = {"metadata": {"name": "digits-master-0", "namespace": "team"}, "containers": usage}
    metrics = {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": [measured]}

    async with stand_in_api_server((200, pods), 403, (200, metrics)) as stand_in:
        found = await ClusterSite(stand_in.config()).usage(job)
        path, _, query = stand_in.requests[-1].split()[1].partition("?")

    assert path == "/apis/metrics.k8s.io/v1beta1/namespaces/team/pods"
    assert parse_qs(query) == {"labelSelector": ["training.kubeflow.org/job-name=digits"]}
    assert found.unknown == ""
    [use] = found.replicas
    assert (use.replica, use.cpu, use.memory) == ("digits-master-0", 0.25, 64 * 2**20)


def test_the_default_keeps_to_the_requests_that_waiting_may_cost() -> None:
    """120 an hour, of which the watches need up to 60."""
    looks = 3600 / ClusterConfig().usage_interval
    nodes = [f"n{number}" for number in range(1000)]
    asked, metrics = asked_in(0, nodes, kubelets=True, metrics=True)

    assert looks * (len(asked) + metrics) <= 60
