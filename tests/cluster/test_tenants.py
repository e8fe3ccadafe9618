from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from cluster.gpu import RESOURCE, gpus
from cluster.images import INIT_IMAGE
from cluster.layout import NODE
from cluster.shell import ClusterFailed, wait_until
from cluster.tenants import service_account

if TYPE_CHECKING:
    from cluster.boot import Cluster

READ_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
CREATE_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}


def pod(namespace: str, *, resources: dict[str, Any] | None = None, **security: Any) -> dict[str, Any]:
    """Return a pod that sleeps."""
    container = {"name": "sleep", "image": INIT_IMAGE, "command": ["sleep", "600"], "resources": resources or {}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "sleep", "namespace": namespace},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container | security]},
    }


def running(cluster: Cluster, namespace: str) -> dict[str, Any] | None:
    """Return the pod if it runs."""
    found = cluster.kubectl.get("pod", "sleep", namespace=namespace)
    return found if found["status"].get("phase") == "Running" else None


def test_a_service_account_may_do_what_its_rules_say_and_no_more(cluster: Cluster, namespace: str) -> None:
    """Its kubeconfig works by itself, and the real authorizer says which verb is missing."""
    kubectl = cluster.kubectl_as(service_account(cluster, namespace, [READ_PODS]))

    assert kubectl.list("pods", namespace=namespace) == []
    with pytest.raises(ClusterFailed, match=r'cannot create resource "pods"'):
        kubectl("create", "--filename", "-", stdin=json.dumps(pod(namespace)))
    with pytest.raises(ClusterFailed, match=r'cannot list resource "pods".*namespace "default"'):
        kubectl.list("pods")


def test_other_rules_take_effect_for_a_kubeconfig_that_is_there(cluster: Cluster, namespace: str) -> None:
    """Verbs can be given and taken away while somebody works with the file."""
    kubectl = cluster.kubectl_as(service_account(cluster, namespace, [READ_PODS]))

    service_account(cluster, namespace, [CREATE_PODS])

    def denied() -> bool:
        try:
            kubectl.list("pods", namespace=namespace)
        except ClusterFailed as error:
            return "cannot list" in str(error)
        return False

    assert wait_until("the verb to be taken away", denied, timeout=60)


def test_a_hardened_namespace_refuses_an_ordinary_pod_and_gives_limits_to_a_restricted_one(
    cluster: Cluster, hardened_namespace: str
) -> None:
    """Pod security, limit range and quota are enforced, not only written down."""
    restricted = {
        "allowPrivilegeEscalation": False,
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
        "capabilities": {"drop": ["ALL"]},
    }

    with pytest.raises(ClusterFailed, match="violates PodSecurity"):
        cluster.kubectl.apply(pod(hardened_namespace))
    with pytest.raises(ClusterFailed, match="maximum memory usage per Container is 8Gi"):
        cluster.kubectl.apply(
            pod(hardened_namespace, securityContext=restricted, resources={"limits": {"memory": "9Gi"}})
        )
    cluster.kubectl.apply(pod(hardened_namespace, securityContext=restricted))

    seen = wait_until("the restricted pod to run", lambda: running(cluster, hardened_namespace), timeout=180)
    (container,) = seen["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "500m", "memory": "512Mi"}


def test_gpus_are_there_for_the_scheduler_and_gone_afterwards(cluster: Cluster, namespace: str) -> None:
    """A pod that asks for two of four is placed; a node without any has none in its status."""
    with gpus(cluster, 4):
        cluster.kubectl.apply(pod(namespace, resources={"limits": {RESOURCE: "2"}}))
        placed = wait_until(
            "the pod to be placed",
            lambda: cluster.kubectl.get("pod", "sleep", namespace=namespace)["spec"].get("nodeName"),
            timeout=180,
        )

    assert placed == NODE
    assert RESOURCE not in cluster.kubectl.get("node", NODE)["status"]["allocatable"]
