"""Fixtures that several files of this folder use on the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cluster_world import config_of
from kubernetes_backend.terminal import Terminal, person
from kubernetes_backend.trainjobs import Lab
from ptjob_provider.core.kubernetes import KubernetesBackend
from rbac import rules

if TYPE_CHECKING:
    from cluster.boot import Cluster


@pytest.fixture
def lab(trained: Cluster, namespace: str) -> Lab:
    """Return a namespace in which TrainJobs run."""
    return Lab(trained, namespace)


@pytest.fixture
def backend(cluster: Cluster) -> KubernetesBackend:
    """Return the back-end with an administrator's rights."""
    return KubernetesBackend(config_of(cluster.layout.kubeconfig))


@pytest.fixture
def terminal(cluster: Cluster, namespace: str) -> Terminal:
    """Return the terminal of a person who has the documented Role."""
    return person(cluster, namespace, rules())
