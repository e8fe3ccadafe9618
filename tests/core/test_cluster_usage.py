"""Tests of usage: capacity of nodes, requests of pods, and figures of the metrics API."""

from __future__ import annotations

from typing import Any

import pytest

from ptjob_provider.core.inspector import NodeUse, ReplicaUse
from ptjob_provider.core.kubernetes.usage import figures_of, from_metrics, nodes_in_use, replica_use

READY = {"type": "Ready", "status": "True"}


def node(name: str, *, labels: dict[str, str] | None = None, spec: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a node with two GPUs."""
    addresses = [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": "10.0.0.1"}]
    allocatable = {"cpu": "7910m", "memory": "16Gi", "nvidia.com/gpu": "2", "pods": "110"}
    status = {"addresses": addresses, "allocatable": allocatable, "conditions": [READY]}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec or {}, "status": status}


def pod(
    where: str, requests: dict[str, str], *, phase: str = "Running", init: dict[str, str] | None = None
) -> dict[str, Any]:
    """Return a pod with these requests."""
    gpus = {name: count for name, count in requests.items() if "/" in name}
    container = {"name": "pytorch", "resources": {"requests": requests, "limits": gpus}}
    spec: dict[str, Any] = {"nodeName": where, "containers": [container]}
    if init:
        spec["initContainers"] = [{"resources": {"requests": init}}]
    return {"metadata": {"name": "p"}, "spec": spec, "status": {"phase": phase}}


def test_a_node_is_shown_with_what_its_pods_have_asked_for() -> None:
    """As in the scheduler: ended pods do not count; a larger request of an init container replaces the sum."""
    pods = [
        pod("a", {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}),
        pod("a", {"cpu": "500m"}, init={"cpu": "2"}),
        pod("a", {"cpu": "4", "nvidia.com/gpu": "1"}, phase="Succeeded"),
        pod("", {"cpu": "4"}, phase="Pending"),
    ]

    (found,) = nodes_in_use([node("a", labels={"node-role.kubernetes.io/control-plane": ""})], pods)

    assert found == NodeUse(
        name="a",
        address="10.0.0.1",
        role="control-plane",
        status="ready",
        gpus=2,
        gpus_taken=1,
        cpu=7.91,
        cpu_taken=3.0,
        memory=16 * 2**30,
        memory_taken=2**30,
    )


def test_a_node_on_which_no_pod_gets_says_so() -> None:
    bare = {"metadata": {"name": "c"}, "spec": {}, "status": {}}

    cordoned, unknown = nodes_in_use([node("b", spec={"unschedulable": True}), bare], [])

    assert cordoned.status == "ready,unschedulable"
    assert (unknown.status, unknown.address, unknown.cpu, unknown.memory) == ("notReady", "", None, None)


def test_a_replica_is_shown_with_what_is_measured_of_it() -> None:
    """A replica without a pod, or whose pod has ended, holds no GPU."""
    running, ended = pod("a", {"nvidia.com/gpu": "1"}), pod("a", {"nvidia.com/gpu": "1"}, phase="Failed")

    assert replica_use("x", None, {}) == ReplicaUse(replica="x")
    assert replica_use("x", ended, {}) == ReplicaUse(replica="x", node="a", phase="Failed")
    assert replica_use("x", running, {"cpu": 0.5}) == ReplicaUse(
        replica="x", node="a", phase="Running", gpus=1, cpu=0.5
    )


def item(name: str = "p", *, at: str = "2026-11-20T12:00:00Z", containers: Any = ()) -> dict[str, Any]:
    """Return a PodMetrics in namespace ml."""
    return {"metadata": {"name": name, "namespace": "ml"}, "timestamp": at, "containers": containers}


def started(at: str | None) -> dict[str, Any]:
    """Return pod p in namespace ml with this start time, or without one."""
    return {"metadata": {"name": "p", "namespace": "ml"}, "status": {"startTime": at} if at else {}}


NOON = started("2026-11-20T12:00:00Z")


def test_the_metrics_api_says_cores_and_bytes() -> None:
    usage = [{"usage": {"cpu": "250m", "memory": "64Mi"}}, {"usage": {"cpu": "1000000n", "memory": "1Mi"}}]

    assert figures_of(NOON, from_metrics([item(containers=usage)])) == {"cpu": 0.251, "memory": 65 * 2**20}


def test_unmeasured_figures_are_left_out_and_are_no_zero() -> None:
    """Missing containers, partial figures and items without a name are ignored.

    A memory usage of zero is not a measurement; a CPU usage of zero is one.
    """
    half, idle = [{"usage": {"cpu": "1"}}, {"usage": None}], [{"usage": {"cpu": "0", "memory": "0"}}]

    assert from_metrics([item(containers=None), {"containers": half}, {"metadata": {"name": "p"}}]) == {}
    assert figures_of(NOON, from_metrics([item(containers=half)])) == {"cpu": 1.0}
    assert figures_of(NOON, from_metrics([item(containers=idle)])) == {"cpu": 0.0}
    assert figures_of(NOON, {}) == {}


@pytest.mark.parametrize(
    ("at", "began", "is_its_own"),
    [
        ("2026-11-20T12:00:00Z", "2026-11-20T12:00:00Z", True),
        ("2026-11-20T11:59:59Z", "2026-11-20T12:00:00Z", False),
        ("", "2026-11-20T12:00:00Z", True),
        ("2026-11-20T12:00:00Z", None, True),
    ],
)
def test_figures_of_an_earlier_pod_are_not_those_of_the_next_one_of_its_name(
    at: str, began: str | None, *, is_its_own: bool
) -> None:
    """The metrics API identifies pods by name only; a figure older than the pod is not its own."""
    measured = from_metrics([item(at=at, containers=[{"usage": {"cpu": "1"}}])])

    assert bool(figures_of(started(began), measured)) == is_its_own
