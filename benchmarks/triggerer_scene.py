"""Sets up the triggerer's measurement: Airflow on PostgreSQL, jobs on the test cluster, and tasks that are deferred."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import postgresql
import rbac
from benchmarks import apiserver, many_jobs
from cluster.boot import Cluster
from cluster.layout import Layout
from cluster.tenants import namespace_in, service_account
from demo.stack import Stack, StackConfig
from ptjob_provider.core.identity import Owner
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.run.submit import Submission
from ptjob_provider.core.spec import TrainingJob
from task_run import TaskRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ptjob_provider.core.identity import Manifest

HERE = Path(__file__).parent
DAG_ID, TASK_ID = "waiting", "train"
ALPINE = "docker.io/library/alpine:3.10"
LINES = 300
SCRIPT = f"i=0; while [ $i -lt {LINES} ]; do echo line $i; i=$((i + 1)); [ $((i % 10)) -ne 0 ] || sleep 1; done"


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A stack whose jobs are in one namespace of the cluster.

    Attributes:
        stack: Airflow.
        administrator: kubeconfig of the cluster's administrator, who creates and resumes the jobs.
        namespace: the jobs' namespace.
    """

    stack: Stack
    administrator: Path
    namespace: str

    def count(self, *states: str) -> int:
        """Return how many task instances are in one of these states."""
        page = self.stack.api.get(f"dags/{DAG_ID}/dagRuns/~/taskInstances", state=states, limit=1)
        return int(page["total_entries"])

    def make_jobs(self, count: int, ending: int) -> list[Manifest]:
        """Create the jobs, all suspended; the training operator runs the first `ending` once they are resumed."""

        async def create() -> list[Manifest]:
            manifests = [_manifest(self.namespace, number, runs=number < ending) for number in range(count)]
            async with apiserver.reached(self.administrator) as server:
                return await many_jobs.create(server, self.namespace, manifests)

        return asyncio.run(create())

    def write_task_instances(self, jobs: Sequence[Manifest]) -> None:
        """Create a deferred task instance for each job."""
        submissions = [Submission.of(job, adopted=False).to_dict() for job in jobs]
        argv = [sys.executable, str(HERE / "deferred.py")]
        process = subprocess.run(
            argv, input=json.dumps(submissions), env=self.stack.env, capture_output=True, text=True, check=False
        )
        if process.returncode:
            raise SystemExit(f"the task instances could not be written:\n{process.stderr[-5000:]}")

    def let_go(self, jobs: Sequence[Manifest]) -> None:
        """Resume these jobs."""

        async def resume() -> None:
            async with apiserver.reached(self.administrator) as server:
                await many_jobs.in_parallel(lambda job: _let_go(server, job), jobs)

        asyncio.run(resume())

    def incomplete_logs(self, jobs: Sequence[Manifest]) -> list[str]:
        """Return the runs that did not succeed, or whose log over REST lacks or repeats lines of rank 0."""
        return [name for name in (job["metadata"]["name"] for job in jobs) if not self._is_whole(name)]

    def _is_whole(self, run_id: str) -> bool:
        task = TaskRun(self.stack, DAG_ID, run_id, TASK_ID)
        lines = Counter(line for line in task.lines() if line.startswith("line "))
        return task.state == "success" and lines == Counter(f"line {number}" for number in range(LINES))


def _manifest(namespace: str, number: int, *, runs: bool) -> Manifest:
    job = TrainingJob.parse(
        name="waiting", namespace=namespace, image=ALPINE, command=["sh", "-c"], args=[SCRIPT], suspend=True
    )
    ids = {"dag_id": DAG_ID, "task_id": TASK_ID, "run_id": str(number)}
    owner = Owner(instance="benchmark", ids=ids, labels={"try_number": "1"})
    manifest = PYTORCHJOB.render(job, owner=owner, attempt=1).manifest
    if not runs:
        manifest["spec"]["runPolicy"]["managedBy"] = many_jobs.OTHER_CONTROLLER
    return manifest


async def _let_go(server: apiserver.ApiServer, job: Manifest) -> None:
    await server.patch(apiserver.path_of(job), {"spec": {"runPolicy": {"suspend": False}}})


@contextlib.contextmanager
def scene(tell: Callable[[str], None], *, capacity: int, per_loop: int) -> Iterator[Scene]:
    """Start the cluster, a database and Airflow, and stop them when the block ends; a cluster that ran before stays."""
    cluster = Cluster.of(Layout.of(os.environ))
    with contextlib.ExitStack() as held:
        held.enter_context(cluster.borrowed(tell))
        namespace = held.enter_context(namespace_in(cluster))
        address = held.enter_context(postgresql.database(tell))
        root = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="ptjob-triggerer-")))
        kubeconfig = service_account(cluster, namespace, rbac.rules())
        connection = {"conn_type": "kubernetes", "extra": {"kube_config_path": str(kubeconfig), "namespace": namespace}}
        settings = {
            "AIRFLOW__PTJOB__BACKEND": "kubernetes",
            "AIRFLOW__TRIGGERER__CAPACITY": str(capacity),
            "AIRFLOW__TRIGGERER__MAX_TRIGGER_TO_SELECT_PER_LOOP": str(per_loop),
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
            "AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps(connection),
        }
        shutil.copytree(HERE / "triggerer_dags", root / "dags", ignore=shutil.ignore_patterns("__pycache__"))
        config = StackConfig(
            home=root / "home",
            dags=root / "dags",
            database_url=address,
            settings=settings,
            paused_at_creation=False,
        )
        tell("starting Airflow")
        stack = held.enter_context(Stack(config))
        stack.api.wait_for_dag(DAG_ID)
        yield Scene(stack=stack, administrator=cluster.layout.kubeconfig, namespace=namespace)
