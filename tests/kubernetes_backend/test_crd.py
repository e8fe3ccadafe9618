"""Tests of what the cluster serves, as every account may read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cluster.tenants import service_account
from cluster_world import config_of
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kubernetes import KubernetesBackend, discovery
from ptjob_provider.core.kubernetes.client.http import shared_client

if TYPE_CHECKING:
    from cluster.boot import Cluster

PYTORCHJOB = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
MASTER = {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch", "image": "x"}]}}}


async def test_the_fields_of_a_kind_are_read_without_any_right(cluster: Cluster, namespace: str) -> None:
    """An account without any rights still learns whether `runPolicy` exists: Arena's CRD does not have it."""
    config = config_of(service_account(cluster, namespace, [], name="nobody"))

    async with shared_client(config) as client:
        fields = await discovery.spec_fields(client, PYTORCHJOB)

    assert {"pytorchReplicaSpecs", "runPolicy", "elasticPolicy", "nprocPerNode"} <= fields


@pytest.mark.parametrize("version", ["kubeflow.org/v1", "example.org/v1"])
async def test_a_kind_that_is_not_served_is_named_with_what_to_do(cluster: Cluster, version: str) -> None:
    """With or without its group on the server."""
    async with shared_client(config_of(cluster.layout.kubeconfig)) as client:
        text = str(await discovery.refusal(client, {"apiVersion": version, "kind": "Unheard"}))

    assert f"does not serve Unheard of {version}; install the training-operator" in text


async def test_a_namespace_that_is_not_there_is_a_wrong_request(cluster: Cluster) -> None:
    """Before anything starts, with the field."""
    meta = {"name": "lost", "namespace": "no-such-namespace"}
    job = {**PYTORCHJOB, "metadata": meta, "spec": {"pytorchReplicaSpecs": {"Master": MASTER}}}

    with pytest.raises(InvalidSpec, match=r"namespace: 'no-such-namespace' is not allowed"):
        await KubernetesBackend(config_of(cluster.layout.kubeconfig)).submit(job)


async def test_a_field_that_the_cluster_does_not_know_is_refused_by_name(cluster: Cluster, namespace: str) -> None:
    """It is not dropped: a misspelt limit would otherwise be no limit."""
    spec = {"pytorchReplicaSpecs": {"Master": MASTER}, "runPolicy": {"activeDeadlineSecond": 5}}
    job = {**PYTORCHJOB, "metadata": {"name": "misspelt", "namespace": namespace}, "spec": spec}
    backend = KubernetesBackend(config_of(cluster.layout.kubeconfig))

    with pytest.raises(InvalidSpec, match=r'unknown field "spec\.runPolicy\.activeDeadlineSecond"'):
        await backend.submit(job)

    assert await backend.list("PyTorchJob", namespace, {}) == []
