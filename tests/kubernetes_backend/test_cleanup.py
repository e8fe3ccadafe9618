"""Tests of orphaned jobs and of every way to delete a job: on the real operator, with a real claim."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from cluster.images import INIT_IMAGE
from cluster.shell import until
from cluster_world import PATIENCE, config_of
from kubernetes_backend import finished
from ptjob_provider.cli import main
from ptjob_provider.core.identity import Instance, JobRef, Owner
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.run.cleanup import act_on_finished, delete_if_unfinished
from ptjob_provider.core.run.orphans import Orphan, sweep
from ptjob_provider.core.spec import TrainingJob
from ptjob_provider.core.spec.on_finish import OnFinishAction

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cluster.boot import Cluster
    from ptjob_provider.core.identity import Manifest

IDS = {"dag_id": "digits", "task_id": "train", "run_id": "manual__2026-11-21T00:00:00+00:00"}
OWNER = Owner(instance="production", ids=IDS, labels={"try_number": "1"})
WRITES = "head -c 100000 /dev/urandom > /data/weights; mkdir /data/logs; echo events > /data/logs/tfevents; sync"
RUNS_ON = f"{WRITES}; sleep 600"


async def failed(owner: Mapping[str, str]) -> str | None:
    """Stand in for an Airflow in which every task has failed."""
    assert owner == IDS
    return "failed"


class Site:
    """A namespace with a claim."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.backend = KubernetesBackend(config_of(cluster.layout.kubeconfig))
        self.volume = finished.prepared_volume(cluster, namespace)

    def submit(self, script: str) -> JobRef:
        """Start a job from a minimal manifest, and return it once it runs."""
        manifest = finished.job(self.namespace, INIT_IMAGE, "sh", "-c", script, terminationGracePeriodSeconds=1)
        job = TrainingJob.parse(namespace=self.namespace, manifest=manifest)
        rendered = PYTORCHJOB.render(job, owner=OWNER, attempt=1)
        return asyncio.run(self.backend.submit(rendered.manifest))

    def job(self, ref: JobRef) -> Manifest:
        """Return the job's object; {} if it is gone."""
        jobs = self.cluster.kubectl.list("pytorchjobs", namespace=ref.namespace)
        return next((job for job in jobs if job["metadata"]["uid"] == ref.uid), {})

    def running(self, ref: JobRef) -> list[str]:
        """Return the names of the job's running pods."""
        selector = f"training.kubeflow.org/job-name={ref.name}"
        pods = self.cluster.kubectl.list("pods", namespace=ref.namespace, selector=selector)
        return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"]

    def until_phase(self, ref: JobRef, phase: str) -> None:
        """Wait until the job's object has this phase."""
        until(f"{ref} to be {phase}", lambda: self.job(ref) and read_phase(self.job(ref)) == phase, timeout=PATIENCE)

    def until_gone(self, ref: JobRef) -> None:
        """Wait until nothing of the job exists or runs."""
        until(f"{ref} to be gone", lambda: not self.job(ref) and not self.running(ref), timeout=PATIENCE)

    def sweep(self) -> list[Orphan]:
        """Stop the orphaned jobs; all tasks have failed."""
        return asyncio.run(self._sweep())

    async def _sweep(self) -> list[Orphan]:
        who, grace = Instance("production"), timedelta()
        sweeping = sweep(self.backend, failed, namespace=self.namespace, instance=who, grace=grace, stop=True)
        return [finding async for finding in sweeping]


def read_phase(job: Manifest) -> str:
    return PYTORCHJOB.read_status(job).phase.value


def content(folder: Path) -> dict[str, str]:
    """Return the digest of every file in the folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def site(cluster: Cluster, namespace: str) -> Site:
    return Site(cluster, namespace)


def test_no_way_of_deleting_touches_a_claim(site: Site) -> None:
    """Deleted by a user, a killed task, a finished one, the maintenance, or by time: claim and files stay the same."""
    for number, delete in enumerate((by_ptjob, by_on_kill, by_on_finish_action, by_a_sweep, by_its_time_to_live)):
        script = WRITES if delete in {by_on_finish_action, by_its_time_to_live} else RUNS_ON
        ref = site.submit(script.replace("/data/", f"/data/{number}-").replace("; sync", "; echo done > /data/done"))
        site.until_phase(ref, "Running" if script == RUNS_ON else "Succeeded")
        until("the files to be written", (site.volume / "done").exists, timeout=PATIENCE)
        claim, before = claim_of(site), content(site.volume)

        delete(site, ref)
        site.until_gone(ref)

        assert len(before) == 2 * (number + 1) + 1
        assert content(site.volume) == before, delete.__name__
        assert claim_of(site) == claim, delete.__name__
        (site.volume / "done").unlink()


def claim_of(site: Site) -> Manifest:
    return site.cluster.kubectl.get("persistentvolumeclaim", "data", namespace=site.namespace)


def by_ptjob(site: Site, ref: JobRef) -> None:
    config = str(site.cluster.layout.kubeconfig)
    arguments = ["--kubeconfig", config, "-n", site.namespace, "delete", ref.name]
    assert CliRunner().invoke(main, arguments).exit_code == 0


def by_on_kill(site: Site, ref: JobRef) -> None:
    assert asyncio.run(delete_if_unfinished(site.backend, ref))


def by_on_finish_action(site: Site, ref: JobRef) -> None:
    assert asyncio.run(act_on_finished(site.backend, ref, OnFinishAction.DELETE_JOB, succeeded=True))


def by_a_sweep(site: Site, ref: JobRef) -> None:
    assert [finding.job.ref for finding in site.sweep()] == [ref]


def by_its_time_to_live(site: Site, ref: JobRef) -> None:
    asyncio.run(site.backend.patch(ref, {"spec": {"runPolicy": {"ttlSecondsAfterFinished": 0}}}))
