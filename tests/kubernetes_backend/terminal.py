"""A user's terminal on the tests' cluster."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml
from click.testing import CliRunner, Result

from cluster.images import INIT_IMAGE
from cluster.shell import until
from cluster.tenants import service_account
from cluster_world import PATIENCE, config_of
from fakes import ListSink, MemoryStore
from ptjob_provider.cli import main
from ptjob_provider.core.identity import Owner
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.submit import Submission, ensure_submitted
from ptjob_provider.core.spec import TrainingJob

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cluster.boot import Cluster

IDS = {"dag_id": "digits", "task_id": "train", "run_id": "manual__1"}
SMALL = ("--cpu", "50m", "--memory", "64Mi", "--termination-grace-period-seconds", "1")
"""Options for a small job that ends soon after SIGTERM."""

OWNER = Owner(instance="production", ids=IDS, labels={"try_number": "2"})


@dataclass(frozen=True)
class Terminal:
    """A user's terminal; its kubeconfig has the test's namespace."""

    kubeconfig: Path
    cluster: Cluster
    namespace: str

    def ptjob(self, *arguments: str) -> Result:
        environment = {"KUBECONFIG": str(self.kubeconfig), "AIRFLOW_HOME": str(self.kubeconfig.parent)}
        return CliRunner().invoke(main, arguments, env=environment)

    def submit(self, name: str, script: str, **fields: object) -> Submission:
        """Start a job of two pods, which end soon after SIGTERM."""
        small = {"workers": 2, "cpu": "50m", "memory": "32Mi", "termination_grace_period_seconds": 1}
        fields = {**small, **fields}
        command = ["sh", "-c", script]
        job = TrainingJob.parse(name=name, namespace=self.namespace, image=INIT_IMAGE, command=command, **fields)
        return asyncio.run(ensure_submitted(self.backend, job, owner=OWNER, store=MemoryStore()))

    def follow(self, submission: Submission) -> None:
        """Follow the job to its end, as its task does."""
        asyncio.run(asyncio.wait_for(follow(self.backend, submission, sink=ListSink()), PATIENCE))

    @property
    def backend(self) -> KubernetesBackend:
        return KubernetesBackend(config_of(self.cluster.layout.kubeconfig))

    def release(self, pod: str) -> None:
        """Let a replica continue after its lines; it waits for a file."""
        self.lines_of(pod)
        self.cluster.kubectl("exec", pod, "--namespace", self.namespace, "--", "touch", "/tmp/go")  # noqa: S108 - in a pod

    def lines_of(self, pod: str) -> None:
        """Wait until a replica has printed its lines; its pod's status says Running a moment after its log."""
        words = ("logs", pod, "--namespace", self.namespace)
        until("its lines", lambda: "line 3" in self.cluster.kubectl(*words), timeout=PATIENCE)
        until(f"{pod} to say that it runs", lambda: self._runs(pod), timeout=PATIENCE)

    def _runs(self, pod: str) -> bool:
        found = self.cluster.kubectl.get("pod", pod, namespace=self.namespace)
        return bool(found["status"].get("phase") == "Running")

    def pods(self) -> list[str]:
        """Return the names of all pods that exist, including ended ones."""
        return sorted(pod["metadata"]["name"] for pod in self.cluster.kubectl.list("pods", namespace=self.namespace))


def person(cluster: Cluster, namespace: str, rules: Sequence[Mapping[str, Any]]) -> Terminal:
    """Return the terminal of a user with these rules."""
    return Terminal(kubeconfig=service_account(cluster, namespace, rules), cluster=cluster, namespace=namespace)


def terminal_of(cluster: Cluster, namespace: str, folder: Path) -> Terminal:
    """Return a terminal with the administrator's kubeconfig, and the namespace in its context."""
    config = yaml.safe_load(cluster.layout.kubeconfig.read_text())
    for context in config["contexts"]:
        context["context"]["namespace"] = namespace
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return Terminal(kubeconfig=path, cluster=cluster, namespace=namespace)
