"""Tests of pod settings on a real node: one training has all of them.

The training writes more into /dev/shm than a container's default 64 MB; without the memory that jobs get, it fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cluster.gpu import gpus
from cluster.layout import NODE
from kubernetes_backend.finished import followed
from ptjob_provider.core.diagnosis import Cause
from ptjob_provider.core.run.outcome import Outcome

if TYPE_CHECKING:
    from cluster.boot import Cluster

HCA = "rdma/hca"
FILLS = """
import mmap, os
with open("/dev/shm/batch", "w+b") as file:
    file.truncate(80 * 2**20)
    shared = mmap.mmap(file.fileno(), 0)
for start in range(0, len(shared), 4096):
    shared[start] = 1
print("filled, as process", os.getpid(), flush=True)
"""
TRAINS: dict[str, Any] = {
    "command": ["python3", "-c", FILLS],
    "cpu": "100m",
    "memory": "256Mi",
    "termination_grace_period_seconds": 1,
}


def priority(name: str) -> dict[str, Any]:
    """Return a priority class without preemption."""
    words = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
    return {**words, "value": 7, "preemptionPolicy": "Never"}


def pull_secret(namespace: str) -> dict[str, Any]:
    """Return a secret for a registry that does not exist."""
    meta = {"name": "registry", "namespace": namespace}
    words = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "kubernetes.io/dockerconfigjson"}
    return {**words, "stringData": {".dockerconfigjson": '{"auths": {}}'}}


async def test_a_pod_gets_all_that_it_asks_for(cluster: Cluster, namespace: str, digits_image: str) -> None:
    """An RDMA device, the host's network, PIDs and IPC, a priority, a pull secret, and shared memory.

    A node selector requires a label that only this node has; a toleration matches a taint that it does not have.
    """
    name = f"ptjob-{namespace}"
    cluster.kubectl.apply(priority(name), pull_secret(namespace))
    cluster.kubectl("label", "node", NODE, f"{name}=this")
    device = {"container_resources": {"limits": {HCA: 1}}}
    is_this = {"matchExpressions": [{"key": name, "operator": "In", "values": ["this"]}]}
    where = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [is_this]}}}
    stands = {"key": "dedicated", "operator": "Equal", "value": "training", "effect": "NoSchedule"}
    shares = {"spec": {"containers": [{"name": "pytorch"}], "hostIPC": True, "hostPID": True}}
    try:
        with gpus(cluster, 1, resource=HCA):
            conclusion, sink = await followed(
                cluster, namespace, "asks", image=digits_image, **TRAINS, **device,
                pod_template=shares, host_network=True, priority_class_name=name, image_pull_secrets=["registry"],
                node_selector={name: "this"}, affinity=where, tolerations=[stands],
            )  # fmt: skip
            pods = cluster.kubectl.list("pods", namespace=namespace)
    finally:
        cluster.kubectl("delete", "priorityclass", name)
        cluster.kubectl("label", "node", NODE, f"{name}-")

    assert conclusion.outcome is Outcome.SUCCEEDED, conclusion.diagnosis
    [line] = sink.lines
    assert line.startswith("filled, as process ")
    assert line != "filled, as process 1"
    [pod] = pods
    spec, status = pod["spec"], pod["status"]
    assert (spec["priority"], spec["hostIPC"], spec["hostPID"]) == (7, True, True)
    assert (spec["nodeName"], spec["nodeSelector"], spec["affinity"]) == (NODE, {name: "this"}, where)
    assert stands in spec["tolerations"]
    assert status["podIP"] == status["hostIP"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert spec["containers"][0]["resources"]["limits"][HCA] == "1"


async def test_without_shared_memory_the_same_training_dies_and_the_diagnosis_says_why(
    cluster: Cluster, namespace: str, digits_image: str
) -> None:
    """A container's default 64 MB are too few: SIGBUS, and advice on what to raise."""
    conclusion, _ = await followed(cluster, namespace, "dies", image=digits_image, **TRAINS, shared_memory=False)

    assert conclusion.outcome is Outcome.FAILED
    assert conclusion.diagnosis is not None
    assert (conclusion.diagnosis.cause, conclusion.diagnosis.retryable) == (Cause.SHARED_MEMORY, False)
    assert "died of SIGBUS" in conclusion.diagnosis.summary
    assert "Raise the shared memory" in conclusion.diagnosis.resolution
