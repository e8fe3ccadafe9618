"""Namespaces as careful administrators make them: pod security `restricted`, a quota, a limit range."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from cluster.images import INIT_IMAGE
from cluster.operators import restrict_init_containers
from cluster.tenants import hardened_namespace_in, service_account
from cluster_world import PATIENCE, config_of
from fakes import ListSink, MemoryStore
from kubernetes_backend.finished import prepared_volume
from ptjob_provider.core.identity import Owner
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.run.submit import Submission, ensure_submitted
from ptjob_provider.core.spec import TrainingJob
from rbac import rules

if TYPE_CHECKING:
    from cluster.boot import Cluster
    from ptjob_provider.core.run.outcome import JobOutcome

OWNER = Owner(instance="test", ids={"dag_id": "d", "task_id": "t", "run_id": "r", "map_index": "-1"}, labels={})
HARDENED: dict[str, Any] = {
    "security_context": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
    "container_security_context": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
TRAIN = "import os, time; time.sleep(2); open(os.environ['PTJOB_MODEL_PATH'], 'wb').write(b'weights'); print('done')"


class Tenant:
    """An account with the documented Role in a hardened namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.backend = KubernetesBackend(config_of(service_account(cluster, namespace, rules())))
        self.namespace = namespace

    async def run(self, **fields: Any) -> tuple[Submission, JobOutcome, ListSink]:
        """Submit a job and follow it to its end."""
        job = TrainingJob.parse(name="hard", namespace=self.namespace, memory="256Mi", cpu="0.5", **fields)
        sink = ListSink()
        async with asyncio.timeout(PATIENCE):
            submission = await ensure_submitted(self.backend, job, owner=OWNER, store=MemoryStore())
            return submission, await follow(self.backend, submission, sink=sink), sink


async def test_a_job_is_submitted_followed_and_verified(
    cluster: Cluster, hardened_namespace: str, digits_image: str
) -> None:
    """The job's pod and the pod that looks at its outputs both pass; nothing of them is left."""
    volume = prepared_volume(cluster, hardened_namespace)
    tenant = Tenant(cluster, hardened_namespace)

    submission, conclusion, sink = await tenant.run(
        image=digits_image, command=["python", "-c", TRAIN], volumes=["data:/data"], model="pvc://data/out/model.pt",
        **HARDENED,
    )  # fmt: skip

    assert conclusion.outcome is Outcome.SUCCEEDED, conclusion
    assert conclusion.result is not None
    assert conclusion.result["model"]["bytes"] == (volume / "model.pt").stat().st_size
    assert sink.lines == ["done"]
    assert await tenant.backend.pods_gone(submission.ref)


@pytest.fixture(scope="module")
def restricted_cluster(own_cluster: Cluster) -> Cluster:
    """Have a cluster whose operator gives its init containers a security context, as its administrator may."""
    restrict_init_containers(own_cluster.kubectl)
    return own_cluster


async def test_workers_run_where_the_operators_init_container_is_hardened_too(restricted_cluster: Cluster) -> None:
    """The operator's own container is what else has to pass."""
    with hardened_namespace_in(restricted_cluster) as namespace:
        tenant = Tenant(restricted_cluster, namespace)

        _, conclusion, sink = await tenant.run(
            image=INIT_IMAGE, command=["sh", "-c", "echo rank $RANK; sleep 12"], workers=2, **HARDENED
        )

    assert conclusion.outcome is Outcome.SUCCEEDED, conclusion
    assert sink.lines == ["rank 0"]
