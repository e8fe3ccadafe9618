from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from cluster.images import INIT_IMAGE
from cluster.layout import API_SERVICE
from cluster.shell import wait_until

if TYPE_CHECKING:
    from cluster.boot import Cluster


def pytorchjob(name: str, namespace: str, script: str) -> dict[str, Any]:
    """Return a job of two replicas that run a shell command."""
    container = {"name": "pytorch", "image": INIT_IMAGE, "command": ["sh", "-c", script]}
    replica = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"pytorchReplicaSpecs": {"Master": replica, "Worker": replica}},
    }


def ending(cluster: Cluster, namespace: str, name: str, *, timeout: float = 300) -> str:
    """Wait for a job's verdict and return it."""

    def verdict() -> str:
        conditions = (
            cluster.kubectl.get("pytorchjob", name, namespace=namespace).get("status", {}).get("conditions", [])
        )
        true = [condition["type"] for condition in conditions if condition["status"] == "True"]
        return next((word for word in ("Failed", "Succeeded") if word in true), "")

    return wait_until(f"the verdict on {name}", lambda: verdict() or None, timeout=timeout)


def test_a_pod_reaches_the_cluster_and_nothing_else(cluster: Cluster, namespace: str) -> None:
    """A pod talks to the API server's service but not to this machine, and no route leads further."""
    with socket.create_server((cluster.layout.host_address, 0)) as listener:
        port = listener.getsockname()[1]
        reached = f"timeout 90 nc -w 60 {API_SERVICE} 443 </dev/null"
        not_reached = f"! timeout 5 nc -w 3 {cluster.layout.host_address} {port} </dev/null"
        script = f"{reached} && {not_reached}"
        cluster.kubectl.apply(pytorchjob("leave", namespace, script))
        seen = ending(cluster, namespace, "leave")

    assert seen == "Succeeded"
    assert "default" not in cluster.machine.run(["ip", "route"])
