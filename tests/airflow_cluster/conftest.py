"""Fixtures: one Airflow per session whose jobs run as pods on the test cluster.

Its connection is a kubeconfig with the token of a service account. That account has the rights of `deploy/base`, the
rights for other kinds (for the one TrainJob), and the rights for a TensorBoard.
"""

from __future__ import annotations

import json
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import code_servers
import postgresql
import rbac
from cluster.sync_image import SYNC
from cluster.tenants import namespace_in, service_account
from cluster_world import Tenant
from code_servers import Net
from demo.stack import Stack, StackConfig
from installed import ROOT
from task_run import TaskRun, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster.boot import Cluster
    from code_servers import Served
    from ptjob_provider.core.identity import JobRef, Manifest

HERE = Path(__file__).parent
PATIENCE = 600
"""Seconds for six tasks to start at once, each with a job whose pods start, on a busy machine."""

GO = "/tmp/go"  # noqa: S108 - in a pod

TICKS = f"""
i=0
while [ ! -e {GO} ]; do echo "tick $i"; i=$((i + 1)); sleep 0.5; done
echo "finished after $i"
"""
"""Prints a numbered line twice a second until the file `GO` exists."""

TRAINS = f"""
python code/digits/train.py --epochs=2 --backend=gloo
while [ ! -e {GO} ]; do sleep 0.2; done
"""
KEEPS = f"""
echo "a canary of ${{#CANARY}} characters"
while [ ! -e {GO} ]; do sleep 0.2; done
"""
OUTPUTS = {"volumes": ["digits:/data"], "model": "/data/models/7/model.pt", "tfevents": "/data/logs/7"}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "timed-out": ("defer_timeout", {"script": TICKS}),
    "trained": ("defer_0", {"script": TRAINS, **OUTPUTS, "tensorboard": True}),
    "as-train-job": ("defer_trainjob", {"script": 'echo "rank $RANK of $WORLD_SIZE"', "workers": 2}),
    "marked-failed": ("defer_0", {"script": TICKS, "workers": 2}),
    "marked-success": ("defer_0", {"script": TICKS}),
    "cleared": ("defer_0", {"script": TICKS}),
}
"""All runs start at once; a job's name begins with the run's name."""

TRAINS_AT_LAST = """
echo "attempt $PTJOB_ATTEMPT"
[ "$PTJOB_ATTEMPT" = 2 ] || sleep 600
"""
PREEMPTED: dict[str, tuple[str, dict[str, Any]]] = {
    f"{mode}-evicted": (f"{mode}_preempted", {"script": TRAINS_AT_LAST, "workers": 2}) for mode in ("wait", "defer")
}
"""Runs that are no part of RUNS, so that `make test-versions` starts them alone."""

APART: dict[str, tuple[str, dict[str, Any]]] = {
    "keeps-secret": ("defer_secret", {"script": KEEPS}),
    "in-database": ("defer_in_database", {"script": "echo trained"}),
}
"""Runs that are no part of `make test`."""


@dataclass(frozen=True, kw_only=True)
class Lab:
    """The stack, the namespace of its jobs, their code repository, and a secret of theirs."""

    stack: Stack
    cluster: Cluster
    namespace: str
    kubeconfig: Path
    image: str
    code: Served
    canary: str

    def start(self, name: str) -> TaskRun:
        """Start one of the runs."""
        dag_id, conf = {**RUNS, **PREEMPTED, **APART}[name]
        program = {"image": self.image, "code": self.code.address} if "python" in conf["script"] else {}
        run_id = self.stack.api.trigger(dag_id, {"name": name, **conf, **program})
        return TaskRun(self.stack, dag_id, run_id)

    def release(self, ref: JobRef) -> None:
        """Let rank 0 finish."""
        self.cluster.kubectl.let_end(f"{ref.name}-master-0", "touch", GO, namespace=self.namespace)

    def jobs(self) -> dict[str, Manifest]:
        """Return the existing jobs by uid, including those that are being deleted."""
        return {
            job["metadata"]["uid"]: job for job in self.cluster.kubectl.list("pytorchjobs", namespace=self.namespace)
        }

    def pods(self, ref: JobRef) -> list[Manifest]:
        """Return the job's pods, without those of other jobs with the same name."""
        pods = self.cluster.kubectl.list("pods", namespace=self.namespace)
        return [
            pod for pod in pods if ref.uid in [owner["uid"] for owner in pod["metadata"].get("ownerReferences", ())]
        ]

    def wait_until_gone(self, ref: JobRef) -> None:
        """Wait until the job and all its pods are deleted."""
        until(
            lambda: ref.uid not in self.jobs() and not self.pods(ref),
            timeout=PATIENCE,
            what=f"the end of {ref}",
            interval=0.5,
        )

    def ever_submitted(self, name: str) -> set[str]:
        """Return the uids of all jobs with this name prefix for which the namespace has events."""
        objects = [event["involvedObject"] for event in self.cluster.kubectl.list("events", namespace=self.namespace)]
        return {
            about["uid"] for about in objects if about["kind"] == "PyTorchJob" and about["name"].startswith(f"{name}-")
        }


@pytest.fixture(scope="session")
def lab(
    trained: Cluster, digits_image: str, tell: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lab]:
    """Start the stack in its own namespace; afterwards delete both."""
    root = tmp_path_factory.mktemp("airflow-cluster")
    shutil.copytree(HERE / "dags", root / "dags", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "dags" / "digits_handover.py", root / "dags")
    cluster, repositories = trained, tmp_path_factory.mktemp("code")
    with (
        namespace_in(cluster) as namespace,
        code_servers.digits(repositories, Net.of(cluster)) as code,
        postgresql.database_if_possible(tell) as address,
    ):
        kubeconfig = service_account(cluster, namespace, [*rbac.rules_of_kinds(), *rbac.tensorboard_rules()])
        Tenant(cluster, namespace).claim("digits")
        canary, metadata = f"canary-{secrets.token_hex(8)}", {"name": "credentials", "namespace": namespace}
        values = {"canary": canary}
        cluster.kubectl.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": values})
        config = StackConfig(
            home=root / "home",
            dags=root / "dags",
            database_url=address,
            settings={
                **settings(kubeconfig, namespace, probe_image=digits_image),
                "AIRFLOW__PTJOB__SYNC_IMAGE": SYNC.ensure(cluster, tell),
            },
            paused_at_creation=False,
            parallelism=6,
        )
        with Stack(config) as stack:
            for dag_id in ("defer_secret", "digits_handover"):
                stack.api.wait_for_dag(dag_id)
            yield Lab(
                stack=stack,
                cluster=cluster,
                namespace=namespace,
                kubeconfig=kubeconfig,
                image=digits_image,
                code=code,
                canary=canary,
            )


@pytest.fixture(scope="session")
def timed_out(lab: Lab) -> TaskRun:
    """Start the run that times out; tests that come earlier ask for it, so that its three minutes pass beside them."""
    return lab.start("timed-out")


@pytest.fixture(scope="session")
def runs(lab: Lab, timed_out: TaskRun) -> dict[str, TaskRun]:
    return {name: timed_out if name == "timed-out" else lab.start(name) for name in RUNS}


def settings(kubeconfig: Path, namespace: str, *, probe_image: str) -> dict[str, str]:
    """Return the environment of an Airflow whose connection defines the cluster and the namespace."""
    extra = {"kube_config": kubeconfig.read_text(), "namespace": namespace}
    return {
        "AIRFLOW__PTJOB__BACKEND": "kubernetes",
        "AIRFLOW__PTJOB__PROBE_IMAGE": probe_image,
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.3",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
        "AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps({"conn_type": "kubernetes", "extra": extra}),
    }
