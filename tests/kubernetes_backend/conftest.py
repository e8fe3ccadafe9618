"""What several files of this folder use on the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kubernetes_backend.trainjobs import Lab

if TYPE_CHECKING:
    from cluster.boot import Cluster


@pytest.fixture
def lab(trained: Cluster, namespace: str) -> Lab:
    """Return a namespace where TrainJobs are run."""
    return Lab(trained, namespace)
