"""Tests of submission against a real API server; all cases are in tests/core/test_submission.py."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from cluster.images import INIT_IMAGE
from cluster_world import PATIENCE, config_of
from fakes import MemoryStore
from ptjob_provider.core.errors import ClusterUnavailable, JobAlreadyExists
from ptjob_provider.core.identity import JobRef, Owner
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.run.submit import Submission, ensure_submitted
from ptjob_provider.core.spec import TrainingJob

if TYPE_CHECKING:
    from cluster.boot import Cluster

IDS = {"dag_id": "d", "task_id": "t", "run_id": "manual__2026-11-21T00:00:00+00:00", "map_index": "-1"}
OWNER = Owner(instance="production", ids=IDS, labels={"try_number": "1"})
STAGING = Owner(instance="staging", ids=IDS, labels={"try_number": "1"})


class AnswersLost(KubernetesBackend):
    """Stands in for a connection that breaks between a create and its response: the job is created."""

    async def submit(self, manifest: dict[str, Any]) -> JobRef:
        """Create the job, and raise an error."""
        await super().submit(manifest)
        raise ClusterUnavailable("the connection broke before the answer came")


class Site:
    """A namespace, and a task instance that submits to it."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.config = config_of(cluster.layout.kubeconfig)
        self.backend = KubernetesBackend(self.config)
        self.namespace = namespace
        self.store = MemoryStore()

    async def submit(self, **how: Any) -> Submission:
        """Submit or adopt, as a task's try does."""
        backend = how.pop("backend", self.backend)
        how = {"owner": OWNER, "store": self.store, **how}
        async with asyncio.timeout(PATIENCE):
            return await ensure_submitted(backend, self.job(), **how)

    def job(self) -> TrainingJob:
        """Return a job of one pod that keeps running."""
        command, grace = ["sleep", "300"], {"termination_grace_period_seconds": 1}
        return TrainingJob.parse(name="row", namespace=self.namespace, image=INIT_IMAGE, command=command, **grace)

    async def live(self) -> list[str]:
        """Return the uids of the jobs that have not ended."""
        jobs = await self.backend.list("PyTorchJob", self.namespace, {})
        return [job["metadata"]["uid"] for job in jobs if not PYTORCHJOB.read_status(job).phase.is_terminal]


@pytest.fixture
def site(cluster: Cluster, namespace: str) -> Site:
    return Site(cluster, namespace)


async def test_a_create_without_an_answer_that_was_done_is_adopted(site: Site) -> None:
    submission = await site.submit(backend=AnswersLost(site.config))

    assert await site.live() == [submission.ref.uid]


async def test_somebody_elses_job_is_left_alone(site: Site) -> None:
    """The error says what to do."""
    theirs = await site.submit(owner=STAGING, exact_name=True, store=MemoryStore())

    with pytest.raises(JobAlreadyExists, match=r"did not create.*another name"):
        await site.submit(exact_name=True)

    assert await site.live() == [theirs.ref.uid]


async def test_two_installations_share_a_namespace(site: Site) -> None:
    """The same DAG, task and run of staging and production are two jobs."""
    ours, theirs = await asyncio.gather(site.submit(), site.submit(owner=STAGING, store=MemoryStore()))

    assert ours.ref.name != theirs.ref.name
    assert set(await site.live()) == {ours.ref.uid, theirs.ref.uid}
