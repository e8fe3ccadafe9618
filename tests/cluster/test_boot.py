from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cluster.layout import NODE
from cluster.shell import ClusterFailed

if TYPE_CHECKING:
    from cluster.boot import Cluster


def test_every_component_runs(cluster: Cluster) -> None:
    """All parts of a real cluster are processes of their own."""
    pids = {name: cluster.pid(name) for name in cluster.components()}

    assert len(set(pids.values())) == 8


def test_the_kubernetes_is_the_version_that_go_mod_names(cluster: Cluster) -> None:
    """Server and node say v1.34.4, not the v0.0.0 of an unstamped build."""
    server = json.loads(cluster.kubectl("version", "--output", "json"))["serverVersion"]["gitVersion"]
    node = cluster.kubectl.get("node", NODE)["status"]["nodeInfo"]["kubeletVersion"]

    assert (server, node) == ("v1.34.4", "v1.34.4")


def test_the_training_operator_judges_jobs(cluster: Cluster) -> None:
    """Its webhook refuses a name that the API server lets through: operator, service and proxy work together."""
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "1st"},
        "spec": {"pytorchReplicaSpecs": {}},
    }

    with pytest.raises(ClusterFailed, match=r"admission webhook.*1st"):
        cluster.kubectl("create", "--dry-run=server", "--filename", "-", stdin=json.dumps(job))
