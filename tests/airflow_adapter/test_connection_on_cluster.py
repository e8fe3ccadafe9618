"""Test of each way to name a cluster in Airflow, against a real cluster, through the hook's back-end."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
import yaml

from cluster.tenants import service_account
from ptjob_provider.airflow.connection import ConnectionArgs
from ptjob_provider.core.kinds import PYTORCHJOB

if TYPE_CHECKING:
    from pathlib import Path

    from cluster.boot import Cluster

NOWHERE = {"name": "nowhere", "context": {"cluster": "nowhere", "user": "nobody"}}


def two_contexts(path: Path) -> Path:
    """Return a kubeconfig with a second context that points to no server."""
    found = yaml.safe_load(path.read_text())
    found["contexts"].append(NOWHERE)
    found["clusters"].append({"name": "nowhere", "cluster": {"server": "https://127.0.0.1:1"}})
    found["users"].append({"name": "nobody", "user": {}})
    other = path.parent / "two-contexts.json"
    other.write_text(json.dumps(found))
    return other


@pytest.fixture
def kubeconfig(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use the cluster's kubeconfig and hide any other."""
    monkeypatch.setenv("AIRFLOW__PTJOB__BACKEND", "kubernetes")
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    path = tmp_path / "kubeconfig"
    path.write_bytes(cluster.layout.kubeconfig.read_bytes())
    return path


def jobs(access: ConnectionArgs, namespace: str) -> int:
    """Return the number of jobs that the back-end lists."""
    return len(asyncio.run(access.resolve().backend.list(PYTORCHJOB.KIND, namespace, {})))


def test_a_task_chooses_the_context_of_its_connection(
    kubeconfig: Path, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The namespace is empty: the list has no jobs."""
    extra = {"kube_config_path": str(two_contexts(kubeconfig)), "cluster_context": "nowhere"}
    monkeypatch.setenv("AIRFLOW_CONN_MINE", json.dumps({"conn_type": "kubernetes", "extra": extra}))
    context = yaml.safe_load(kubeconfig.read_text())["current-context"]

    assert jobs(ConnectionArgs(kubernetes_conn_id="mine", cluster_context=context), namespace) == 0


def test_without_a_connection_the_default_kubeconfig_reaches_it(
    kubeconfig: Path, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded_at_import = "kubernetes_asyncio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION"
    monkeypatch.setattr(loaded_at_import, str(kubeconfig))

    assert jobs(ConnectionArgs(), namespace) == 0


@pytest.fixture
def _in_pod(cluster: Cluster, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set up what a pod of the namespace has: its service account's files and the server's address."""
    rule = {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": ["list"]}
    access = json.loads(service_account(cluster, namespace, [rule]).read_text())
    server = access["clusters"][0]["cluster"]
    address = urlsplit(server["server"])
    files = {
        "token": access["users"][0]["user"]["token"],
        "ca.crt": base64.b64decode(server["certificate-authority-data"]).decode(),
        "namespace": namespace,
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(address.hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(address.port))
    # A kubelet mounts the files at fixed paths that exist only in a pod.
    monkeypatch.setattr("ptjob_provider.core.kubernetes.client.credentials.SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setattr("ptjob_provider.airflow.hooks._POD_NAMESPACE", tmp_path / "namespace")


@pytest.mark.usefixtures("kubeconfig", "_in_pod")
@pytest.mark.parametrize(
    "access", [ConnectionArgs(), ConnectionArgs(kubernetes_conn_id=None), ConnectionArgs(in_cluster=True)]
)
def test_in_a_pod_its_service_account_reaches_the_cluster(namespace: str, access: ConnectionArgs) -> None:
    """With and without `in_cluster`; jobs without a namespace belong to the pod's own."""
    assert access.resolve().namespace == namespace
    assert jobs(access, namespace) == 0


@pytest.mark.usefixtures("_in_pod")
def test_a_kubeconfig_wins_over_a_pods_service_account(kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The account may list jobs in the pod's namespace only; with a kubeconfig, jobs are not created there."""
    extra = {"kube_config_path": str(kubeconfig)}
    monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", json.dumps({"conn_type": "kubernetes", "extra": extra}))

    assert ConnectionArgs().resolve().namespace is None
    assert jobs(ConnectionArgs(), "kube-system") == 0
