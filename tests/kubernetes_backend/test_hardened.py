"""Tests of hardened namespaces: pod security `restricted`, a quota, a limit range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cluster.images import INIT_IMAGE
from cluster.operators import restrict_init_containers
from cluster.tenants import hardened_namespace_in
from cluster_world import RESTRICTED, config_of
from kubernetes_backend.finished import followed, prepared_volume
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.run.outcome import Outcome

if TYPE_CHECKING:
    from cluster.boot import Cluster

HARDENED: dict[str, Any] = {"memory": "256Mi", "cpu": "0.5", **RESTRICTED}
TRAIN = "import os, time; time.sleep(2); open(os.environ['PTJOB_MODEL_PATH'], 'wb').write(b'weights'); print('done')"


async def test_a_job_is_submitted_followed_and_verified(
    cluster: Cluster, hardened_namespace: str, digits_image: str
) -> None:
    """The job's pod and the probe pod are both admitted, and nothing of them is left."""
    volume = prepared_volume(cluster, hardened_namespace)
    outputs: dict[str, Any] = {"volumes": ["data:/data"], "model": "pvc://data/out/model.pt"}

    conclusion, sink = await followed(
        cluster, hardened_namespace, "hard", image=digits_image, command=["python", "-c", TRAIN], **outputs, **HARDENED
    )

    assert conclusion.outcome is Outcome.SUCCEEDED, conclusion
    assert conclusion.result is not None
    assert conclusion.result["model"]["bytes"] == (volume / "model.pt").stat().st_size
    assert sink.lines == ["done"]
    backend = KubernetesBackend(config_of(cluster.layout.kubeconfig))
    assert await backend.pods_gone(JobRef.from_dict(conclusion.result["job"]))


@pytest.fixture(scope="module")
def restricted_cluster(own_cluster: Cluster) -> Cluster:
    """Return a cluster whose operator adds a security context to its init containers, as an administrator may."""
    restrict_init_containers(own_cluster.kubectl)
    return own_cluster


async def test_workers_run_where_the_operators_init_container_is_hardened_too(restricted_cluster: Cluster) -> None:
    """The operator's own container has to be admitted, too."""
    with hardened_namespace_in(restricted_cluster) as namespace:
        command = ["sh", "-c", "echo rank $RANK; sleep 12"]
        conclusion, sink = await followed(
            restricted_cluster, namespace, "hard", image=INIT_IMAGE, command=command, workers=2, **HARDENED
        )

    assert conclusion.outcome is Outcome.SUCCEEDED, conclusion
    assert sink.lines == ["rank 0"]
