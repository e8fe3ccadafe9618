from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest

from cluster.images import INIT_IMAGE
from cluster.layout import API_SERVICE
from cluster.shell import wait_until

if TYPE_CHECKING:
    from cluster.boot import Cluster

CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


def pytorchjob(name: str, namespace: str, *, script: str = "", image: str = INIT_IMAGE, **pod: Any) -> dict[str, Any]:
    """Return a job of two replicas; its container runs a shell command, or what `container=` says."""
    container = {"name": "pytorch", "image": image, **({"command": ["sh", "-c", script]} if script else {})}
    container |= pod.pop("container", {})
    replica = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [container], **pod}}}
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


@pytest.mark.parametrize(("code", "verdict"), [(0, "Succeeded"), (3, "Failed")])
def test_the_verdict_follows_the_exit_code(cluster: Cluster, namespace: str, code: int, verdict: str) -> None:
    """The real operator starts both replicas, each knows its rank, and judges by the exit code."""
    job = pytorchjob("hello", namespace, script=f"echo rank $RANK of $WORLD_SIZE; exit {code}")

    cluster.kubectl.apply(job)
    seen = ending(cluster, namespace, "hello")

    assert seen == verdict
    assert cluster.kubectl("logs", "hello-master-0", "--namespace", namespace).strip() == "rank 0 of 2"


def test_replicas_find_each_other_by_name(cluster: Cluster, namespace: str) -> None:
    """The worker's look-up of the master's service gives its address, and bytes travel over the pod network."""
    listen, ask = "echo hello | nc -l -p 9999 -w 240", 'until nc "$MASTER_ADDR" 9999; do sleep 0.2; done'
    script = f'if [ "$RANK" = 0 ]; then {listen}; else {ask}; fi'

    cluster.kubectl.apply(pytorchjob("talk", namespace, script=script))
    seen = ending(cluster, namespace, "talk")

    assert seen == "Succeeded", cluster.kubectl("logs", "talk-worker-0", "--namespace", namespace)


def test_a_claim_binds_and_keeps_what_a_job_wrote(cluster: Cluster, namespace: str) -> None:
    """Dynamic provisioning works, and the volume is a folder that a test can look into."""
    claim = CLAIM | {"metadata": {"name": "data", "namespace": namespace}}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    job = pytorchjob("write", namespace, script="echo $RANK > /data/$RANK", volumes=volumes, container=mounts)

    cluster.kubectl.apply(claim, job)
    seen = ending(cluster, namespace, "write")

    assert seen == "Succeeded"
    assert (cluster.volume("data", namespace=namespace) / "0").read_text() == "0\n"


def test_a_pod_reaches_the_cluster_and_nothing_else(cluster: Cluster, namespace: str) -> None:
    """A pod talks to the API server's service but not to this machine, and no route leads further."""
    with socket.create_server((cluster.layout.host_address, 0)) as listener:
        port = listener.getsockname()[1]
        reached = f"timeout 90 nc -w 60 {API_SERVICE} 443 </dev/null"
        not_reached = f"! timeout 5 nc -w 3 {cluster.layout.host_address} {port} </dev/null"
        script = f"{reached} && {not_reached}"
        cluster.kubectl.apply(pytorchjob("leave", namespace, script=script))
        seen = ending(cluster, namespace, "leave")

    assert seen == "Succeeded"
    assert "default" not in cluster.machine.run(["ip", "route"])


@pytest.mark.parametrize(
    "start",
    [
        pytest.param({"args": ["--epochs", "1"]}, id="by itself"),
        pytest.param({"command": ["torchrun", "--nproc-per-node=2", "train.py", "--epochs", "1"]}, id="by torchrun"),
    ],
)
def test_the_digits_image_trains_on_two_replicas(
    cluster: Cluster, namespace: str, digits_image: str, start: dict[str, Any]
) -> None:
    """DDP over gloo and the pod network: the image, the operator's environment and the network fit each other."""
    cluster.kubectl.apply(pytorchjob("digits", namespace, image=digits_image, container=start))

    assert ending(cluster, namespace, "digits", timeout=600) == "Succeeded"
