"""Run steps of pipelines as pods of the tests' cluster: start, interrupt and watch them."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kfp import dsl, kubernetes

from cluster import shell
from cluster.shell import ClusterFailed
from cluster.tenants import namespace_in, service_account
from cluster_world import Tenant
from kfp_adapter.compiled import compile_pipeline, load_pipeline
from kfp_cluster.in_pod.launcher_stand_in import PUBLISHED
from kfp_cluster.seen import JobsSeen, jobs_seen
from kfp_cluster.step_pod import Try, programs, step_pod
from kfp_cluster.stock_role import RUNNER, STOCK, documented
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.kfp.component import pytorchjob_op

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cluster.boot import Cluster
    from ptjob_provider.core.identity import Manifest

T = TypeVar("T")
EXAMPLES = Path(__file__).parents[2] / "pipelines"
PAUSE = 0.3
PATIENCE = 600
"""Seconds for a step and its job to start or to end on a busy machine."""

STEM = "of-"
"""Prefix of the names of all jobs, followed by the run's ID, which a name must not start with."""

WORKFLOW = "workflow-stand-in"
"""Prefix of the config maps that replace Argo's Workflows: each controls the pods of one run."""

GO = "/tmp/go"  # noqa: S108 - in a pod
WAITS = f'echo waiting; while [ ! -e {GO} ]; do sleep 0.2; done; echo "released"'
"""A training that prints a line when it starts, and ends when it is released."""


@dataclass(frozen=True, kw_only=True)
class Lab:
    """A namespace for pipelines, whose steps have the documented permissions.

    Attributes:
        cluster: Cluster of the namespace.
        namespace: Name of the namespace.
        image: Image of the steps.
        seen: All jobs that the namespace has ever had.
    """

    cluster: Cluster
    namespace: str
    image: str
    seen: JobsSeen

    def pipeline(self, *, as_user: int | None = None, **fields: Any) -> dict[str, Any]:
        """Compile a pipeline with one training, by default one that waits; the job's name has the run's ID."""
        run = dsl.PIPELINE_JOB_ID_PLACEHOLDER
        waits = {"name": f"{STEM}{run}", "image": self.image, "command": ["sh", "-c", WAITS], "workers": 1}
        asked = {**waits, "termination_grace_period_seconds": 1, **fields}

        def pipeline():  # noqa: ANN202 - kfp reads annotations, which are texts here
            task = pytorchjob_op(step_image=self.image, **asked)
            if as_user is not None:
                kubernetes.set_security_context(task, run_as_user=as_user, run_as_group=as_user)

        return self.compiled(pipeline)

    def compiled(self, define: Callable[..., Any]) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            return compile_pipeline(define, Path(folder))

    @functools.cached_property
    def waiting(self) -> dict[str, Any]:
        """A pipeline whose training waits until it is released, compiled once."""
        return self.pipeline()

    def example(self, name: str) -> dict[str, Any]:
        """Compile a file of `pipelines/` for an installation whose step image is elsewhere."""
        with tempfile.TemporaryDirectory() as folder:
            environ = {**os.environ, "PTJOB_STEP_IMAGE": self.image}
            subprocess.run([sys.executable, str(EXAMPLES / f"{name}.py")], cwd=folder, env=environ, check=True)
            return load_pipeline(Path(folder) / f"{name}.yaml")

    def start(self, attempt: Try, pipeline: dict[str, Any] | None = None, *, account: str = RUNNER) -> Step:
        manifest = step_pod(pipeline or self.waiting, attempt, self.namespace, account=account)
        manifest["metadata"]["ownerReferences"] = [self.controller(attempt.run)]
        text = self.cluster.kubectl("create", "--filename", "-", "--output", "json", stdin=json.dumps(manifest))
        metadata = json.loads(text)["metadata"]
        return Step(lab=self, attempt=attempt, name=metadata["name"], uid=metadata["uid"])

    def running(self, attempt: Try, pipeline: dict[str, Any] | None = None) -> tuple[Step, JobRef]:
        """Start a step and return it with its job when the training prints."""
        step = self.start(attempt, pipeline)
        step.wait_for_line("waiting")
        return step, JobRef.of(self.job(attempt.run))

    def controller(self, run: str) -> dict[str, Any]:
        """Create the object that controls the pods of a run, and return its owner reference."""
        owner = {"apiVersion": "v1", "kind": "ConfigMap"}
        name = f"{WORKFLOW}-{run}"
        self.cluster.kubectl.apply({**owner, "metadata": {"name": name, "namespace": self.namespace}})
        uid = self.cluster.kubectl.get("configmap", name, namespace=self.namespace)["metadata"]["uid"]
        return {**owner, "name": name, "uid": uid, "controller": True, "blockOwnerDeletion": True}

    def deposit(self, name: str, **values: str) -> None:
        """Create a Secret."""
        metadata = {"name": name, "namespace": self.namespace}
        self.cluster.kubectl.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": values})

    def objects(self, kind: str) -> list[Manifest]:
        return self.cluster.kubectl.list(kind, namespace=self.namespace)

    def jobs(self, run: str) -> list[Manifest]:
        """Return the existing jobs of a run, including those that are being deleted."""
        return [job for job in self.objects("pytorchjobs") if _is_of(job["metadata"]["name"], run)]

    def live_jobs(self, run: str) -> list[JobRef]:
        """Return the jobs of a run that have not ended and are not being deleted."""
        alive = [job for job in self.jobs(run) if not job["metadata"].get("deletionTimestamp")]
        return [JobRef.of(job) for job in alive if not PYTORCHJOB.read_status(job).phase.is_terminal]

    def job(self, run: str) -> Manifest:
        """Return the only job of a run when it exists."""
        (job,) = until(f"a job of {run}", lambda: self.jobs(run))
        return job

    def pods(self, ref: JobRef) -> list[Manifest]:
        """Return all pods that a job owns, including those that inspect its outputs."""
        return [pod for pod in self.objects("pods") if ref.uid in owners(pod)]

    def wait_until_gone(self, run: str) -> None:
        """Wait until a run has no jobs and no pods of jobs; the steps' own pods may stay."""

        def is_gone() -> bool:
            pods = [pod for pod in self.objects("pods") if _is_of(pod["metadata"]["name"], run)]
            return not pods and not self.jobs(run)

        until(f"the end of all jobs of {run}", is_gone)

    def delete_run(self, run: str) -> None:
        """Delete a run and with it the pods of its steps, as a user or an expired time to live does."""
        self.cluster.kubectl("delete", "configmap", "-n", self.namespace, f"{WORKFLOW}-{run}", "--wait=false")

    def wait_until_only_rank0_is_left(self, ref: JobRef) -> None:
        """Wait until rank 0's ended pod is the only pod of a job: the pod that inspects outputs is gone."""
        left = {(f"{ref.name}-master-0", "Succeeded")}

        def found() -> set[tuple[str, str]]:
            return {(pod["metadata"]["name"], pod["status"]["phase"]) for pod in self.pods(ref)}

        until(f"rank 0 alone to be left of {ref}", lambda: found() == left)

    def wait_for_pod(self, ref: JobRef, phase: str) -> None:
        """Wait until rank 0's pod is in a phase."""
        until(
            f"{ref} to be {phase}",
            lambda: [pod for pod in self.pods(ref) if pod["status"].get("phase") == phase],
        )

    def release(self, ref: JobRef) -> None:
        """Let a waiting training succeed."""
        self.wait_for_pod(ref, "Running")
        self.cluster.kubectl.let_end(f"{ref.name}-master-0", "touch", GO, namespace=self.namespace)

    def ever_submitted(self, run: str) -> set[str]:
        """Return the uids of all jobs that a run has ever had, including short-lived ones."""
        there = {JobRef.of(job).uid for job in self.jobs(run)}
        return there | {uid for name, uid in self.seen.all() if _is_of(name, run)}


@dataclass(frozen=True, kw_only=True)
class Step:
    """One try of a step, which is a pod."""

    lab: Lab
    attempt: Try
    name: str
    uid: str

    def __call__(self, *words: str) -> str:
        """Run a program in the step's container and return its output."""
        return self.lab.cluster.kubectl("exec", "-n", self.lab.namespace, self.name, "--", *words)

    def log(self, *options: str) -> str:
        """Return the container's log, or "" before the container has started."""
        with contextlib.suppress(ClusterFailed):
            return self.lab.cluster.kubectl("logs", "-n", self.lab.namespace, self.name, *options)
        return ""

    def wait_for_line(self, line: str) -> None:
        """Wait until the log has this line; kfp also logs the source of the program."""
        until(f"{line!r} in the log of {self.name}", lambda: line in self.log().splitlines())

    def wait_for_notice(self, text: str) -> None:
        """Wait until one of the step's notices contains this text."""
        what = f"{text!r} said by {self.name}"
        until(what, lambda: any(text in said for said in self.notices()))

    def notices(self) -> list[str]:
        """Return the notices of the step and of the emissary stand-in."""
        return [line for line in self.log().splitlines() if line.startswith(("── ", "emissary: "))]

    def state(self) -> dict[str, Any]:
        """Return the state of the container, or {} if it has none yet."""
        pod = self.lab.cluster.kubectl.get("pod", self.name, namespace=self.lab.namespace)
        statuses = pod["status"].get("containerStatuses") or [{}]
        return dict(statuses[0].get("state", {}))

    def wait(self) -> int:
        """Wait until the container ends and return its exit code."""
        ended = until(f"the end of {self.name}", lambda: self.state().get("terminated"))
        return int(ended["exitCode"])

    def published(self) -> dict[str, Any]:
        """Return what the launcher has published, or {} if it has published nothing."""
        _, _, value = self.log().rpartition(f"\n{PUBLISHED}")
        return dict(json.loads(value)) if value.startswith("{") else {}

    def terminate(self) -> None:
        """Send SIGTERM to the first process, as terminating a run does, and nothing else for thirty seconds."""
        with contextlib.suppress(ClusterFailed):  # the container may end before the response arrives
            self("sh", "-c", "kill -TERM 1")

    def kill(self) -> None:
        """Kill launcher and component with SIGKILL, as the kernel does when memory is short."""
        with contextlib.suppress(ClusterFailed):  # the container may end before the response arrives
            self("sh", "-c", "kill -KILL -1")

    def delete(self, *, at_once: bool = False) -> None:
        """Delete the pod; with `at_once`, without waiting for its processes, as when its node is lost."""
        how = ("--force", "--grace-period=0") if at_once else ("--wait=false",)
        self.lab.cluster.kubectl("delete", "pod", "-n", self.lab.namespace, self.name, *how)

    def remove(self) -> None:
        """Delete the pod and wait until it is gone, as a person's retry of a run does before it restarts the step."""
        self.lab.cluster.kubectl("delete", "pod", "-n", self.lab.namespace, self.name, timeout=PATIENCE)


def until(what: str, check: Callable[[], T]) -> T:
    """Return the first true result of a check, which runs a few times per second because it starts a process."""

    def checked() -> T | None:
        time.sleep(PAUSE)
        return check() or None

    return shell.until(what, checked, timeout=PATIENCE)


def new_run(word: str) -> str:
    return f"{word}-{secrets.token_hex(3)}"


def owners(found: Manifest) -> list[str]:
    return [owner["uid"] for owner in found["metadata"].get("ownerReferences", ())]


def _is_of(name: str, run: str) -> bool:
    return name.startswith(f"{STEM}{run}-")


@contextlib.contextmanager
def lab_in(cluster: Cluster, image: str) -> Iterator[Lab]:
    """Create a namespace for pipelines, which is deleted at the end."""
    with namespace_in(cluster) as namespace:
        service_account(cluster, namespace, [*STOCK, *documented()], name=RUNNER)
        cluster.kubectl.apply(programs(namespace))
        Tenant(cluster, namespace).claim("digits")
        with jobs_seen(cluster.kubectl, namespace) as seen:
            yield Lab(cluster=cluster, namespace=namespace, image=image, seen=seen)
