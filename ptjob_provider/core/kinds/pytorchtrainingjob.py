"""PyTorchTrainingJob of `batch.tensorstack.dev/v1beta1`, whose torchrun command line T9k builds itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.history import ContainerKind, Termination
from ptjob_provider.core.identity import SHORTEST_NAME
from ptjob_provider.core.kinds import pod_template
from ptjob_provider.core.kinds.kind import (
    Kind,
    Pods,
    Reported,
    assembled,
    numbered,
    owner_in,
    status_of,
    template_in,
    true_conditions,
    with_code,
    with_name,
    without_server_fields,
)
from ptjob_provider.core.kinds.pod_template import (
    POD_SHAPE,
    check_shape,
    count,
    placed,
    requested_template,
)
from ptjob_provider.core.spec import ElasticPolicy
from ptjob_provider.core.spec.places import refusals
from ptjob_provider.core.status import JobPhase, JobStatus, parse_instant
from ptjob_provider.core.tensorboard import TensorBoardPlan

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from datetime import datetime

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kinds.kind import Attempt, PodOwner, Rendered, Replica
    from ptjob_provider.core.spec import TrainingJob
    from ptjob_provider.core.spec.job import Role

KIND = "PyTorchTrainingJob"
API_VERSION = "batch.tensorstack.dev/v1beta1"

CONTAINER = "python"
"""Name of the training container; without a container of this name, the first one trains."""

_BEGINNINGS = (
    ("torchrun",),
    ("python", "-m", "torch.distributed.run"),
    ("python3", "-m", "torch.distributed.run"),
)


_LONGEST_POD = 63
_OWNER = "tensorstack.dev/owner-name"
_RANDOM = re.compile(r"-[0-9a-f]{5}-(?=[a-z])")


_PHASES = {
    "Running": JobPhase.RUNNING,
    "Paused": JobPhase.SUSPENDED,
    "Succeeded": JobPhase.SUCCEEDED,
    "Failed": JobPhase.FAILED,
}
"""T9k's phases → ours. In its other phases, Pending, Resuming and Unknown, the job has not started."""

_ENDS = {"Failed": JobPhase.FAILED, "Completed": JobPhase.SUCCEEDED}
_DETAILS = {
    JobPhase.FAILED: ("Failed", "ReplicaFailure"),
    JobPhase.SUCCEEDED: ("Completed",),
    JobPhase.SUSPENDED: ("Paused",),
}
"""Conditions with the reason and the message of a phase, in order of precedence."""


_INDEX = re.compile(r"-(\d+)$")
_STOPPED = 143
"""Exit code of a container that ends by SIGTERM, which the deletion of its pod sends."""


class PyTorchTrainingJob(Kind):
    """PyTorchTrainingJob of `batch.tensorstack.dev/v1beta1`, as run by T9k's platform."""

    KIND = KIND
    API_VERSION = API_VERSION
    PLURAL = "pytorchtrainingjobs"
    OPERATOR = "T9k's job controller"
    CONTAINER = CONTAINER
    POD_LABEL = _OWNER
    OPERATORS_LABELS = frozenset({_OWNER})
    STOP_RUNNING_PODS = {"spec": {"runPolicy": {"cleanUpPolicy": "Unfinished"}}}  # noqa: RUF012 - never changed

    def read_status(self, job: Mapping[str, Any]) -> JobStatus:
        """Derive the job's status from its object: from the phase or, if that is missing, the conditions."""
        true = true_conditions(job)
        phase = _PHASES.get((job.get("status") or {}).get("phase") or "", JobPhase.PENDING)
        if phase is JobPhase.PENDING:
            phase = next((end for name, end in _ENDS.items() if name in true), phase)
        deciding: Mapping[str, Any] = next((true[name] for name in _DETAILS.get(phase, ()) if name in true), {})
        running = (true.get("Running") or true.get("Initialized") or {}).get("lastTransitionTime")
        has_run = phase in {JobPhase.RUNNING, JobPhase.SUCCEEDED, JobPhase.FAILED}
        started = (running or job["metadata"].get("creationTimestamp")) if has_run else None
        return status_of(job, phase, deciding, started=started)

    def running_since(self, job: Mapping[str, Any]) -> datetime | None:
        """Return the time of the condition `Running`; None unless it is true."""
        return parse_instant(true_conditions(job).get("Running", {}).get("lastTransitionTime"))

    def least(self, job: Mapping[str, Any]) -> int | None:
        """Return the number of replicas with which an elastic job trains; None for all."""
        elastic = job["spec"].get("elastic") or {}
        return elastic.get("minReplicas") if elastic.get("enabled") else None

    def replicas(self, manifest: Mapping[str, Any]) -> tuple[Replica, ...]:
        """Return all replicas in the order of their roles; the first one is the master."""
        roles = ((str(spec.get("type") or "worker"), spec) for spec in replica_specs(manifest))
        return tuple(numbered(manifest["metadata"]["name"], roles))

    def stops_by_itself(self, job: Mapping[str, Any]) -> bool:
        """Return whether the job's policy makes the controller stop the remaining pods when the job ends."""
        return (job["spec"].get("runPolicy") or {}).get("cleanUpPolicy") in {"Unfinished", "All"}

    def owner_of(self, pod: Mapping[str, Any]) -> PodOwner:
        """Return the pod's job: by the pod's owner reference, else by its label."""
        owner, labels = owner_in(pod, KIND), pod["metadata"].get("labels") or {}
        return owner if owner.name else replace(owner, name=str(labels.get(_OWNER) or ""))

    def replica_of(self, pod: Mapping[str, Any]) -> str:
        """Return the pod's replica name: the pod's name without the five random letters."""
        name, owner = str(pod["metadata"]["name"]), self.owner_of(pod).name
        rest = name.removeprefix(owner)
        return owner + _RANDOM.sub("-", rest, count=1) if owner and rest != name else name

    def reported(self, job: Mapping[str, Any]) -> Reported:
        """Return the replica states in the job's status, which alone has the names of the pods."""
        status = job.get("status") or {}
        tasks = status.get("tasks") or ()
        pods = list(_replicas(job, tasks, {each.name for each in self.replicas(job)}))
        trainers = {
            str(spec.get("type") or "worker"): training_container(template_in(spec)) for spec in replica_specs(job)
        }
        counted = sum(int(task.get("restartCount") or 0) for task in tasks)
        return Reported(
            pods={str(pod["name"]): replica for _, replica, pod in pods},
            ends=tuple(end for role, replica, pod in pods for end in _failure(replica, pod, trainers[role])),
            restarts=counted or int(status.get("backoffCount") or 0),
        )

    def priority(self, manifest: Mapping[str, Any]) -> str:
        """Return the job's priority number in T9k's queue, else the pods' priority class."""
        queue = (manifest["spec"].get("scheduler") or {}).get("t9kScheduler") or {}
        pod = self.rank0_template(manifest).get("spec") or {}
        return str(queue.get("priority") or pod.get("priorityClassName") or "")

    def templates(self, manifest: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Yield the template of every role, rank 0's first."""
        yield from map(template_in, replica_specs(manifest))

    def build(self, attempt: Attempt) -> Rendered:
        """Return the PyTorchTrainingJob of one attempt.

        Raises:
            InvalidSpec: a PyTorchTrainingJob does not support a field, or an output is on no claim.
        """
        requested = _requested(attempt.job, attempt.installation.template)
        requested = with_name(requested, attempt, longest=None if attempt.exact_name else _longest_name(requested))
        made = assembled(requested, with_code(_pods(requested), attempt), attempt, put_back=_with_templates)
        return replace(made, manifest=_with_tensorboard(made.manifest, attempt.job))


def _longest_name(requested: Manifest) -> int:
    """Return the maximum length of the job's name with which no pod's name is too long."""
    return max(_LONGEST_POD - max(len(_ending(spec)) for spec in replica_specs(requested)), SHORTEST_NAME)


def _ending(spec: Mapping[str, Any]) -> str:
    """Return what follows the job's name in the name of a role's last pod."""
    return f"-xxxxx-{spec['type']}-{count(spec) - 1}"


def _pods(manifest: Manifest) -> list[Pods]:
    """Return the pods of each role, rank 0's first. Types are free words, and two roles may have the same one."""
    name = manifest["metadata"]["name"]
    return [
        Pods(
            role=str(spec["type"]),
            key=f"role-{index}",
            first=f"{name}-{spec['type']}-0",
            container=training_container(spec["template"]),
            template=spec["template"],
        )
        for index, spec in enumerate(replica_specs(manifest))
    ]


def _with_templates(manifest: Manifest, templates: Sequence[Manifest]) -> Manifest:
    specs = [{**spec, "template": template} for spec, template in zip(replica_specs(manifest), templates, strict=True)]
    return {**manifest, "spec": {**manifest["spec"], "replicaSpecs": specs}}


def _with_tensorboard(manifest: Manifest, job: TrainingJob) -> Manifest:
    """Return the manifest with T9k's fields for TensorBoard, which T9k's controller runs."""
    plan = TensorBoardPlan.of(manifest) if job.tensorboard else None
    if plan is None:
        return manifest
    template = replica_specs(manifest)[0]["template"]
    image = plan.image or pod_template.find_container(template, training_container(template))["image"]
    fileset = f"t9k://pvc/{plan.claim}/{plan.path}"
    tensorboard = {"image": image, "trainingLogFilesets": [fileset]}
    return {**manifest, "spec": {**manifest["spec"], "tensorboardSpec": tensorboard}}


def replica_specs(job: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the roles of a job, rank 0's first."""
    specs: Sequence[Mapping[str, Any]] = job["spec"].get("replicaSpecs") or ()
    return specs


def training_container(template: Mapping[str, Any]) -> str:
    """Return the name of the training container."""
    names = [str(each.get("name") or "") for each in template["spec"]["containers"]]
    return CONTAINER if CONTAINER in names else names[0]


def _requested(job: TrainingJob, under: TrainingJob | None) -> Manifest:
    manifest = _skeleton(job) if job.manifest is None else _given(job.manifest)
    spec = manifest["spec"]
    torchrun = torchrun_config(job, spec.get("torchrunConfig"))
    is_started = bool(torchrun and torchrun.get("enabled"))
    is_torchrun_ours = job.manifest is None or not (spec.get("torchrunConfig") or {}).get("enabled")
    roles = [
        _role(each, role, job, under, is_command=not is_started, is_torchrun_ours=is_torchrun_ours)
        for each, role in _with_roles(_resized(spec, job.workers), job)
    ]
    changes = {"torchrunConfig": torchrun, "elastic": _elastic(job, spec.get("elastic")), "replicaSpecs": roles}
    spec = placed(KIND, {**spec, **{name: value for name, value in changes.items() if value}}, job)
    if job.elastic_policy is not None:
        spec = placed(KIND, spec, job.elastic_policy)
    whole = {**manifest, "spec": spec}
    return pod_template.with_metadata(whole, labels=job.labels or {}, annotations=job.annotations or {})


def _skeleton(job: TrainingJob) -> Manifest:
    """Return the object of a job without a manifest: with one role, or two if their fields differ."""
    bare = {"spec": {"containers": [{"name": CONTAINER}]}}
    roles: list[tuple[str, int]] = [("worker", job.pod_count)]
    if job.master is not None or job.worker is not None:
        roles = [("master", 1), ("worker", job.pod_count - 1)]
    each = {"template": bare, "restartPolicy": "OnFailure" if job.elastic_policy else "Never"}
    specs = [{"type": role, "replicas": pods, **each} for role, pods in roles if pods]
    spec = {"replicaSpecs": specs, "runPolicy": {"cleanUpPolicy": "Unfinished"}}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {}, "spec": spec}


def _given(given: Manifest) -> Manifest:
    role = {"replicas": int, "template!": {"metadata": Mapping, "spec!": POD_SHAPE}}
    spec = {"replicaSpecs!": [role], "elastic": Mapping, "torchrunConfig": Mapping}
    check_shape("", given, {"metadata": Mapping, "spec!": spec})
    specs = [{"type": "worker", **spec} for spec in given["spec"]["replicaSpecs"]]
    metadata = given.get("metadata") or {}
    return without_server_fields({**given, "metadata": metadata, "spec": {**given["spec"], "replicaSpecs": specs}})


def _resized(spec: Mapping[str, Any], workers: int | None) -> list[Manifest]:
    """Return the roles with this number of pods: the last role grows or shrinks."""
    roles = [dict(each) for each in spec["replicaSpecs"]]
    if workers is None:
        return roles
    others = sum(count(each) for each in roles[:-1])
    if workers <= others:
        raise InvalidSpec.of(
            "workers", workers, f"allowed: more than {others}; the roles before the last one have as many"
        )
    return [*roles[:-1], {**roles[-1], "replicas": workers - others}]


def _with_roles(specs: list[Manifest], job: TrainingJob) -> list[tuple[Manifest, Role]]:
    """Return each role of the object with the role of the specification whose fields it takes.

    Raises:
        InvalidSpec: rank 0 shares its role with other pods, but the specification has different fields for them.
    """
    differ = [name for name in ("master", "worker") if getattr(job, name) is not None]
    if not differ:
        return [(each, "worker") for each in specs]
    if count(specs[0]) > 1:
        given = f"the manifest's first role has {count(specs[0])} pods, which are alike"
        raise InvalidSpec.at(differ[0], f"{given}; have a role of its own for rank 0, or leave it out")
    return [(specs[0], "master"), *((each, "worker") for each in specs[1:])]


def _role(
    spec: Manifest, role: Role, job: TrainingJob, under: TrainingJob | None, *, is_command: bool, is_torchrun_ours: bool
) -> Manifest:
    """Return one role of the object. With torchrun, the command becomes arguments, because T9k ignores commands.

    Args:
        spec: the role in the manifest or the skeleton.
        role: the role whose fields it takes.
        job: the specification.
        under: the installation's template.
        is_command: the container runs its command unchanged, without T9k's torchrun.
        is_torchrun_ours: the manifest, if there is one, does not enable torchrun.
    """
    container = training_container(spec["template"])
    template = requested_template(spec["template"], job, under, role=role, container=container)
    if not is_command and (is_torchrun_ours or job.role(role).command is not None):
        template = pod_template.map_container(template, container, as_arguments)
    return {**spec, "template": template}


def _elastic(job: TrainingJob, given: Mapping[str, Any] | None) -> Manifest | None:
    if job.elastic_policy is None:
        return dict(given) if given is not None else None
    pods = {} if job.workers is None else {"expectedReplicas": job.workers}
    return {**(given or {}), "enabled": True, **pods}


def torchrun_config(job: TrainingJob, given: Mapping[str, Any] | None) -> Manifest | None:
    """Return the torchrun configuration; None if neither the specification nor the manifest has one.

    Raises:
        InvalidSpec: T9k does not support a part of the elastic policy.
    """
    policy = job.elastic_policy
    is_requested = begins_with_torchrun(job.command) or job.nproc_per_node is not None or policy is not None
    if not is_requested:
        return dict(given) if given is not None else None
    config: Manifest = {**(given or {}), "enabled": True}
    if job.nproc_per_node is not None:
        config["procPerNode"] = str(job.nproc_per_node)
    elif "procPerNode" not in config:
        config["procPerNode"] = "gpu" if job.gpus else "1"
    for name, why in refusals(ElasticPolicy, KIND).items() if policy else ():
        if getattr(policy, name) is not None:
            raise InvalidSpec.at(f"elastic_policy.{name}", f"a PyTorchTrainingJob has no place for it; {why}")
    return config


def begins_with_torchrun(command: Sequence[str] | None) -> bool:
    """Return whether a command runs torchrun."""
    return _beginning(command or ()) > 0


def as_arguments(container: Manifest) -> Manifest:
    """Return the container for T9k's torchrun: script and arguments as `args`, and no command.

    Raises:
        InvalidSpec: the command does not run torchrun, so T9k would ignore it.
    """
    command = container.get("command") or []
    if not command:
        return container
    beginning = _beginning(command)
    if not beginning:
        raise InvalidSpec.of(
            "command", command, "allowed: torchrun, script and options; T9k starts its processes by torchrun"
        )
    rest = {name: part for name, part in container.items() if name != "command"}
    return {**rest, "args": [*command[beginning:], *(container.get("args") or [])]}


def _beginning(command: Sequence[str]) -> int:
    return next((len(words) for words in _BEGINNINGS if tuple(command[: len(words)]) == words), 0)


def _replicas(
    job: Mapping[str, Any], tasks: Any, requested: Collection[str]
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield role, name and pod of each replica with a pod. Its index is in the pod's name, else it is the position."""
    for task in tasks:
        role = str(task.get("type") or "worker")
        for position, pod in enumerate(task.get("replicas") or ()):
            number = _INDEX.search(pod.get("name") or "")
            replica = f"{job['metadata']['name']}-{role}-{number[1] if number else position}"
            if pod.get("name") and replica in requested:
                yield role, replica, pod


def _failure(replica: str, pod: Mapping[str, Any], trainer: str) -> Iterator[Termination]:
    """Yield a pod's failed container, if any: the training container if it failed, else another one."""
    containers = [each for each in pod.get("containers") or () if each.get("exitCode")]
    for each in sorted(containers, key=lambda each: each.get("name") != trainer)[:1]:
        code = int(each["exitCode"])
        yield Termination(
            replica=replica,
            pod_uid=str(pod.get("uid") or ""),
            container=str(each.get("name") or ""),
            kind=ContainerKind.TRAINING if each.get("name") == trainer else ContainerKind.SIDECAR,
            exit_code=code,
            stopped=pod.get("phase") == "Deleted" and code == _STOPPED,
        )
