"""One way to fail: the job, the objects it needs, the actions on it, and when its recording ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cluster.tenants import until_counted
from cluster.trainer import apply_runtimes
from kubernetes_backend.world import JOB, World
from ptjob_provider.core import kinds
from ptjob_provider.core.spec import TrainingJob
from recorded import OWNER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cluster.kubectl import Kubectl

ALPINE = "docker.io/library/alpine:3.10"
DIGITS = "ghcr.io/ptjob-provider/digits:test"
TRAINS = 'trap "exit 143" TERM; echo epoch 1; sleep 3600 & wait'
"""A shell script that stands in for a long training; it ends at once on SIGTERM."""


@dataclass(frozen=True, kw_only=True)
class Act:
    """An action on the job, run once, as soon as the world meets a condition."""

    when: Callable[[World], bool]
    do: Callable[[Kubectl, str], object]


def deletes(kind: str, name: str) -> Callable[[Kubectl, str], object]:
    """Return a function that deletes an object without waiting for its end."""
    return lambda kubectl, namespace: kubectl("delete", kind, name, "--namespace", namespace, "--wait=false")


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One way to fail.

    Attributes:
        about: what happens, in a sentence.
        job: `TrainingJob`'s fields.
        pod: fields of the failing pod (the worker's, else the master's) that `TrainingJob` does not have.
        container: the same of its training container.
        run_policy: the same of the job's run policy.
        before: objects that exist in the namespace before the job.
        ready: called after these are created, before the job is.
        undo: called at the end, for what is not deleted with the namespace.
        acts: actions on the job.
        until: returns whether the recording may end.
        lasts: seconds of recording after that.
        limits: `Limits` that differ from the defaults, so that a recording does not take 20 minutes.
        only_the_end: the job is first observed after its end.
        crowd: stories with the same name here are not recorded at the same time.
        timeout: seconds after which the recording fails.
    """

    about: str
    job: Mapping[str, Any]
    pod: Mapping[str, Any] = field(default_factory=dict)
    container: Mapping[str, Any] = field(default_factory=dict)
    run_policy: Mapping[str, Any] = field(default_factory=dict)
    before: tuple[Mapping[str, Any], ...] = ()
    ready: Callable[[Kubectl, str], object] | None = None
    undo: Callable[[Kubectl, str], object] | None = None
    acts: tuple[Act, ...] = ()
    until: Callable[[World], bool] = lambda world: world.has_ended
    lasts: float = 2.0
    limits: Mapping[str, float] = field(default_factory=dict)
    only_the_end: bool = False
    crowd: str = ""
    timeout: float = 240.0

    @property
    def kind(self) -> kinds.Kind:
        """The job's kind; only a PyTorchJob's pods can be given fields that `TrainingJob` does not have."""
        return kinds.named(self.job.get("kind", "PyTorchJob"))

    def prepare(self, kubectl: Kubectl, namespace: str) -> None:
        """Create the objects that the job needs in a namespace, and wait until its quota limits the namespace."""
        before = [{**one, "metadata": {"namespace": namespace, **one["metadata"]}} for one in self.before]
        if before:
            kubectl.apply(*before)
        for runtime in (one for one in before if one["kind"] == "TrainingRuntime"):
            apply_runtimes(kubectl, runtime)
        for quota in (one for one in before if one["kind"] == "ResourceQuota"):
            until_counted(kubectl, quota)
        if self.ready:
            self.ready(kubectl, namespace)

    def training_job(self, namespace: str) -> TrainingJob:
        """Return the job as a user requests it."""
        asked = TrainingJob.parse(**{"name": JOB, "image": ALPINE, "namespace": namespace, **self.job})
        if self.kind.KIND != "PyTorchJob":
            return asked
        manifest = self.kind.render(asked, owner=OWNER, attempt=1, exact_name=True).manifest
        manifest["spec"]["runPolicy"] = {**manifest["spec"].get("runPolicy", {}), **self.run_policy}
        roles = manifest["spec"]["pytorchReplicaSpecs"]
        spec = (roles.get("Worker") or roles["Master"])["template"]["spec"]
        spec["containers"][0] |= self.container
        spec["containers"].extend(self.pod.get("containers", ()))
        spec |= {key: value for key, value in self.pod.items() if key != "containers"}
        return TrainingJob.parse(manifest=manifest)

    def manifest(self, namespace: str) -> dict[str, Any]:
        """Return the job's object as the provider would submit it."""
        asked = self.training_job(namespace)
        return self.kind.render(asked, owner=OWNER, attempt=1, exact_name=True).manifest


def shell(script: str) -> dict[str, Any]:
    """Return a role that runs a shell script."""
    return {"command": ["sh", "-c", script]}


def python(script: str, start: str = "python") -> dict[str, Any]:
    """Return a role that runs a Python program from a file, as trainings do."""
    return {
        "image": DIGITS,
        "command": ["sh", "-c", f"cat > /tmp/train.py <<'END'\n{script}END\nexec {start} /tmp/train.py"],
    }


def worker(about: str, role: Mapping[str, Any], **more: Any) -> Failure:
    """Return a job whose master trains and whose one worker fails."""
    job = {"workers": 2, "shared_memory": False, "master": shell(TRAINS), "worker": role, **more.pop("job", {})}
    return Failure(about=about, job=job, **more)


def alone(about: str, role: Mapping[str, Any], **more: Any) -> Failure:
    """Return a job with one replica."""
    return Failure(about=about, job={"workers": 1, "shared_memory": False, **role, **more.pop("job", {})}, **more)


def together(about: str, role: Mapping[str, Any], **more: Any) -> Failure:
    """Return a job whose two replicas run the same program."""
    return Failure(about=about, job={"workers": 2, "shared_memory": False, **role, **more.pop("job", {})}, **more)
