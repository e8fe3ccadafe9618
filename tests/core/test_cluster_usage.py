"""What nodes have, pods take and kubelets measure."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ptjob_provider.core.kubernetes.usage import (
    ListReader,
    asked_in,
    figures_of,
    from_metrics,
    from_summary,
    nodes_in_use,
    replica_use,
)
from ptjob_provider.core.site import Check, NodeUse, ReplicaUse

READY = {"type": "Ready", "status": "True"}


def node(name: str, *, labels: dict[str, str] | None = None, spec: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a node with two cards."""
    addresses = [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": "10.0.0.1"}]
    allocatable = {"cpu": "7910m", "memory": "16Gi", "nvidia.com/gpu": "2", "pods": "110"}
    status = {"addresses": addresses, "allocatable": allocatable, "conditions": [READY]}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec or {}, "status": status}


def pod(
    where: str, requests: dict[str, str], *, phase: str = "Running", init: dict[str, str] | None = None
) -> dict[str, Any]:
    """Return a pod that has asked for this."""
    gpus = {name: count for name, count in requests.items() if "/" in name}
    container = {"name": "pytorch", "resources": {"requests": requests, "limits": gpus}}
    spec: dict[str, Any] = {"nodeName": where, "containers": [container]}
    if init:
        spec["initContainers"] = [{"resources": {"requests": init}}]
    return {"metadata": {"name": "p"}, "spec": spec, "status": {"phase": phase}}


def test_a_node_is_told_with_what_its_pods_have_asked_for() -> None:
    """As the scheduler counts: what has ended takes nothing, an init container that asks for more counts instead."""
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
    assert found.to_dict()["gpus"] == 2


def test_a_node_on_which_no_pod_gets_says_so() -> None:
    """Cordoned, or not ready, or of which nothing is known."""
    bare = {"metadata": {"name": "c"}, "spec": {}, "status": {}}

    cordoned, unknown = nodes_in_use([node("b", spec={"unschedulable": True}), bare], [])

    assert cordoned.status == "ready,unschedulable"
    assert (unknown.status, unknown.address, unknown.cpu, unknown.memory) == ("notReady", "", None, None)


def test_a_replica_is_told_with_what_is_measured_of_it() -> None:
    """One without a pod, or that has ended, holds no card."""
    running, ended = pod("a", {"nvidia.com/gpu": "1"}), pod("a", {"nvidia.com/gpu": "1"}, phase="Failed")

    assert replica_use("x", None, {}) == ReplicaUse(replica="x")
    assert replica_use("x", ended, {}) == ReplicaUse(replica="x", node="a", phase="Failed")
    assert replica_use("x", running, {"cpu": 0.5}) == ReplicaUse(
        replica="x", node="a", phase="Running", gpus=1, cpu=0.5
    )
    assert replica_use("x", None, {}).to_dict()["cpu"] is None


def test_the_metrics_api_says_cores_and_bytes() -> None:
    """Of all containers of a pod together."""
    usage = [{"usage": {"cpu": "250m", "memory": "64Mi"}}, {"usage": {"cpu": "1000000n", "memory": "1Mi"}}]

    assert from_metrics([{"metadata": {"name": "p", "namespace": "ml"}, "containers": usage}]) == {
        ("ml", "p", ""): {"cpu": 0.251, "memory": 65 * 2**20}
    }


def test_what_the_metrics_api_leaves_out_is_not_known() -> None:
    """A pod whose containers are not counted yet, or of which it says half; what has no name is nobody's."""
    meta = {"name": "p", "namespace": "ml"}
    half = [{"usage": {"cpu": "1"}}, {"usage": None}]

    assert from_metrics([{"metadata": meta, "containers": None}]) == {("ml", "p", ""): {"cpu": None, "memory": None}}
    assert from_metrics([{"metadata": meta, "containers": half}]) == {("ml", "p", ""): {"cpu": 1.0, "memory": None}}
    assert from_metrics([{"containers": half}, {"metadata": {"name": "p"}}]) == {}


def test_a_kubelet_says_network_and_disk_too() -> None:
    """What it does not measure is not known."""
    full = {
        "podRef": {"name": "p", "namespace": "ml"},
        "cpu": {"usageNanoCores": 500_000_000},
        "memory": {"workingSetBytes": 1024},
        "network": {"rxBytes": 10, "txBytes": 20},
        "ephemeral-storage": {"usedBytes": 30},
    }
    young = {"podRef": {"name": "p", "namespace": "other"}}

    found = from_summary([full, young])

    assert found == {
        ("ml", "p", ""): {"cpu": 0.5, "memory": 1024, "received": 10, "sent": 20, "disk": 30},
        ("other", "p", ""): dict.fromkeys(("cpu", "memory", "received", "sent", "disk")),
    }
    assert from_summary([]) == {}
    assert from_summary([{"podRef": None}, {"cpu": {}}]) == {}
    assert from_summary([young | {"cpu": {"usageNanoCores": "1"}, "memory": None}]).keys() == {("other", "p", "")}


def test_what_an_earlier_pod_of_the_name_used_is_not_the_next_ones() -> None:
    """A kubelet still tells of it for a while; the metrics API knows names only, and kubelets of old tell no uid."""
    now = {"metadata": {"name": "p", "namespace": "ml", "uid": "second"}}
    earlier = from_summary([{"podRef": {"name": "p", "namespace": "ml", "uid": "first"}, "network": {"rxBytes": 9}}])
    by_name = from_metrics([{"metadata": {"name": "p", "namespace": "ml"}, "containers": []}])

    assert figures_of(now, earlier) is None
    assert figures_of(now, earlier | by_name) == {"cpu": None, "memory": None}
    assert figures_of({"metadata": now["metadata"] | {"uid": "first"}}, earlier)["received"] == 9  # type: ignore[index]


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_list_is_read_while_it_comes(size: int, indent: int | None) -> None:
    """Wherever it is cut, between the bytes of a letter too; what comes after the list is none of it."""
    items = [{"name": "ä", "pods": [{"x": [1, "]"]}]}, {}, {"name": "b"}]
    whole = {"node": {"name": "pods", "items": 3}, "pods": items, "more": [{"name": "not one"}]}
    data = json.dumps(whole, indent=indent, ensure_ascii=False).encode()
    reader = ListReader("pods")

    found = [each for start in range(0, len(data), size) for each in reader.feed(data[start : start + size])]

    assert found == items


def test_a_list_that_is_not_there_has_nothing() -> None:
    """Nor has one that is cut before its first object is whole."""
    assert list(ListReader("pods").feed(b'{"node": {}}')) == []
    assert list(ListReader("pods").feed(b'{"pods": [{"a": ')) == []
    assert list(ListReader("pods").feed(b'{"pods": []}')) == []


@pytest.mark.parametrize(
    ("nodes", "kubelets", "metrics", "asked"),
    [
        (["a"], True, True, ([["a"], ["a"]], False)),
        (["a", "b"], True, True, ([["a", "b"], ["b", "a"]], False)),
        (["a", "b", "c"], True, True, ([["a"], ["b"]], True)),
        (["a", "b", "c"], True, False, ([["a", "b"], ["c", "a"]], False)),
        (["a", "b", "c"], False, True, ([[], []], True)),
        (["a"], False, False, ([[], []], False)),
        ([], True, True, ([[], []], True)),
    ],
)
def test_a_look_is_two_requests_at_most(
    nodes: list[str], *, kubelets: bool, metrics: bool, asked: tuple[list[list[str]], bool]
) -> None:
    """Whoever may be asked, and however many nodes there are; those that are too many take turns."""
    turns = [asked_in(number, nodes, kubelets=kubelets, metrics=metrics) for number in range(2)]

    assert ([found for found, _ in turns], turns[0][1]) == asked
    assert all(len(found) + wants_metrics <= 2 for found, wants_metrics in turns)


def test_a_check_leaves_as_plain_values() -> None:
    """For `-o json`."""
    assert Check(about="a", is_good=None, said="b").to_dict() == {
        "about": "a",
        "is_good": None,
        "said": "b",
        "advice": "",
    }
