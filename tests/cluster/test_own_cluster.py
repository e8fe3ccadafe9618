from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cluster import operators
from cluster.images import INIT_IMAGE
from cluster.shell import ClusterFailed, wait_until
from cluster.tenants import hardened_namespace_in

if TYPE_CHECKING:
    from cluster.boot import Cluster


def test_a_component_that_has_died_is_named_with_its_log(own_cluster: Cluster) -> None:
    """Every wait of the boot asks for the process like this, and so says why it is in vain."""
    own_cluster.kill("kube-scheduler")

    with pytest.raises(ClusterFailed, match=r"kube-scheduler does not run:\n.*\S"):
        own_cluster.pid("kube-scheduler")

    own_cluster.start("kube-scheduler")
    own_cluster.wait_for("kube-scheduler")


@pytest.mark.parametrize(
    "name", ["containerd", "coredns", "etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy"]
)
def test_a_restarted_component_is_a_new_process_on_the_same_store(own_cluster: Cluster, name: str) -> None:
    """Tests of crashes rely on it: what was there before is there afterwards, and the component answers again."""
    before = own_cluster.pid(name), own_cluster.kubectl.get("namespace", "default")["metadata"]["uid"]

    own_cluster.restart(name)
    uid = wait_until(
        "the namespace", lambda: own_cluster.kubectl.get("namespace", "default")["metadata"]["uid"], timeout=120
    )

    assert own_cluster.pid(name) != before[0]
    assert uid == before[1]


def test_a_pod_outlives_its_kubelet(own_cluster: Cluster, own_namespace: str) -> None:
    """A kubelet that comes back finds the pod running and starts nothing anew, as on any node."""
    own_cluster.kubectl("run", "sleep", f"--image={INIT_IMAGE}", f"--namespace={own_namespace}", "--", "sleep", "600")
    before = wait_until("the pod to run", lambda: started(own_cluster, own_namespace), timeout=180)

    own_cluster.restart("kubelet")
    answer = wait_until(
        "the kubelet to reach the pod",
        lambda: own_cluster.kubectl("exec", "sleep", f"--namespace={own_namespace}", "--", "echo", "still here"),
        timeout=180,
    )

    assert answer == "still here\n"
    assert started(own_cluster, own_namespace) == before


def test_two_replicas_run_in_a_hardened_namespace_when_the_operator_is_told_how(own_cluster: Cluster) -> None:
    """As it comes, its init container makes pod security refuse every worker; its administrator can change that."""
    with hardened_namespace_in(own_cluster) as namespace:
        job = two_replicas(namespace)
        submit(own_cluster, job)
        refused = wait_until("the worker to be refused", lambda: refusal(own_cluster, namespace), timeout=180)
        own_cluster.kubectl("delete", "pytorchjob", "two", "--namespace", namespace)

        operators.restrict_init_containers(own_cluster.kubectl)
        submit(own_cluster, job)
        wait_until("both replicas to end well", lambda: is_over(own_cluster, namespace), timeout=300)

    assert 'container "init-pytorch" must set' in refused


def started(cluster: Cluster, namespace: str) -> str | None:
    """Return the container that runs, by its id."""
    status = cluster.kubectl.get("pod", "sleep", namespace=namespace)["status"]
    running = [one for one in status.get("containerStatuses", []) if "running" in one["state"]]
    return running[0]["containerID"] if running else None


def two_replicas(namespace: str) -> dict[str, Any]:
    """Return a job whose own containers are as restricted as can be.

    Its master ends once its worker has reached it: the worker waits for its name, which it has only while it runs.
    """
    listen, ask = "nc -l -p 9999 -w 240", 'until nc "$MASTER_ADDR" 9999; do sleep 0.2; done'
    script = f'if [ "$RANK" = 0 ]; then {listen}; else {ask}; fi </dev/null'
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {"name": "pytorch", "image": INIT_IMAGE, "command": ["sh", "-c", script], "securityContext": security}
    replica = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "two", "namespace": namespace},
        "spec": {"pytorchReplicaSpecs": {"Master": replica, "Worker": replica}},
    }


def submit(cluster: Cluster, job: dict[str, Any]) -> None:
    """Create a job; the operator's webhook is out of service for a while after the kubelet was restarted."""

    def is_created() -> bool:
        cluster.kubectl.apply(job)
        return True

    wait_until("the operator's webhook to let the job in", is_created, timeout=180)


def refusal(cluster: Cluster, namespace: str) -> str | None:
    """Return what the API server said about a pod that it refused."""
    events = cluster.kubectl.list("events", namespace=namespace)
    return next((event["message"] for event in events if event["reason"] == "FailedCreatePod"), None)


def is_over(cluster: Cluster, namespace: str) -> bool:
    """Tell whether both pods have ended well."""
    pods = cluster.kubectl.list("pods", namespace=namespace)
    return [pod["status"]["phase"] for pod in pods] == ["Succeeded", "Succeeded"]
