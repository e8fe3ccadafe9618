"""What a user of KubernetesPodOperator writes, submitted to a real API server, which refuses unknown fields."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.cncf.kubernetes.secret import Secret
from kubernetes import client as k8s

from airflow_adapter.stand_ins import context
from airflow_adapter.test_kubernetes_objects import OBJECTS, TEMPLATE
from ptjob_provider.airflow.operators import PyTorchJobOperator

if TYPE_CHECKING:
    from cluster.boot import Cluster


@pytest.fixture(autouse=True)
def _reached(cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"kube_config_path": str(cluster.layout.kubeconfig), "namespace": namespace}
    connection = {"conn_type": "kubernetes", "extra": extra}
    monkeypatch.setenv("AIRFLOW__PTJOB__BACKEND", "kubernetes")
    monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", json.dumps(connection))


def submit(cluster: Cluster, namespace: str, **arguments: Any) -> dict[str, Any]:
    """Return the job as the API server has it; it is suspended, so that nothing runs."""
    task = PyTorchJobOperator(task_id="train", image="digits", wait_for_completion=False, suspend=True, **arguments)
    task.render_template_fields({"ds": "monday"})
    submitted = task.execute(context())["job"]
    assert submitted["namespace"] == namespace
    return cluster.kubectl.get("pytorchjob", submitted["name"], namespace=namespace)


def test_objects_of_the_client_arrive_whole(cluster: Cluster, namespace: str) -> None:
    """In the connection's namespace, because the task names none."""
    job = submit(
        cluster,
        namespace,
        workers=2,
        pod_template=TEMPLATE,
        secrets=[Secret("volume", "/etc/tls", "tls", items=[k8s.V1KeyToPath(key="ca", path="ca.pem")])],
        configmaps=["settings"],
        termination_grace_period=5,
        hostnetwork=True,
        **OBJECTS,
    )

    for role in job["spec"]["pytorchReplicaSpecs"].values():
        pod = role["template"]["spec"]
        (container,) = pod["containers"]
        assert (pod["runtimeClassName"], pod["securityContext"]["runAsUser"]) == ("kata", 1000)
        assert (pod["terminationGracePeriodSeconds"], pod["hostNetwork"]) == (5, True)
        assert {"name": "DAY", "value": "monday"} in container["env"]
        assert {mount["mountPath"] for mount in container["volumeMounts"]} >= {"/data", "/models", "/etc/tls"}
        assert pod["initContainers"][0]["command"] == ["sh", "-c", "echo monday"]
        assert pod["affinity"]["podAntiAffinity"]
        assert pod["tolerations"][0]["tolerationSeconds"] == 60


def test_a_job_template_arrives_under_the_job(
    cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fields and a pod, merged as the option says."""
    template = {
        "queue_name": "night",
        "service_account_name": "trainer",
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "pod_template": {"spec": {"priorityClassName": "low", "containers": [{"name": "pytorch", "tty": True}]}},
    }
    monkeypatch.setenv("AIRFLOW__PTJOB__JOB_TEMPLATE", json.dumps(template))

    job = submit(cluster, namespace, service_account_name="mine")

    pod = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "night"
    assert (pod["serviceAccountName"], pod["priorityClassName"]) == ("mine", "low")
    assert pod["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert pod["containers"][0]["tty"] is True
