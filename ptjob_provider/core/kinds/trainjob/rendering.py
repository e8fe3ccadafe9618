"""Render a TrainJob for submission: the requested object plus what marks it as ours."""

from __future__ import annotations

import copy
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kinds import podtemplate
from ptjob_provider.core.kinds.asked import pods_asked_for
from ptjob_provider.core.kinds.metadata import check_labels, check_metadata
from ptjob_provider.core.kinds.ours import QUEUE_LABEL, Attempt, with_name, without_servers_word
from ptjob_provider.core.kinds.podshape import check_pod_shape
from ptjob_provider.core.kinds.rendering import Pods, rendered
from ptjob_provider.core.kinds.trainjob.fetching import with_code
from ptjob_provider.core.kinds.trainjob.runtimes import reference
from ptjob_provider.core.kinds.trainjob.template import CONTAINER, template_of, with_template
from ptjob_provider.core.kinds.trainjob.words import STEP, in_newest_words, without_queues_word
from ptjob_provider.core.spec import Installation
from ptjob_provider.core.spec.literals import mapping

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ptjob_provider.core.identity import Manifest, Owner
    from ptjob_provider.core.kinds.kind import Rendered
    from ptjob_provider.core.spec import TrainingJob

KIND = "TrainJob"
API_VERSION = "trainer.kubeflow.org/v1alpha1"
PLURAL = "trainjobs"

DEFAULT_RUNTIME = "torch-distributed"

_LONGEST_POD = 63
_DRAWN = "-xxxxx"
_MASTER_PORT = 29500
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_RESERVED = {"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"}

_OF_JOB = frozenset(
    {"name", "namespace", "kind", "runtime", "manifest", "pod_template", "model", "tfevents", "checkpoints", "code"}
    | {"tensorboard"}
    | {"workers", "nproc_per_node", "suspend", "active_deadline_seconds", "queue_name", "labels", "annotations"}
)
_OF_PODS = frozenset(
    {
        "image",
        "command",
        "args",
        "env",
        "env_from",
        "volumes",
        "volume_mounts",
        "working_dir",
        "shared_memory",
        "backend_without_gpu",
    }
    | {"gpus", "gpu_resource", "cpu", "memory", "container_resources", "init_containers", "image_pull_policy"}
    | {"node_selector", "tolerations", "affinity", "priority_class_name", "scheduler_name", "host_network"}
    | {"service_account_name", "image_pull_secrets", "security_context", "container_security_context"}
    | {"termination_grace_period_seconds"}
)
"""Fields with a place in the job or in its pods' template; any other field is refused by name."""

_WHY_NOT = {
    "restart_policy": "the runtime says what becomes of a pod that fails",
    "backoff_limit": "the runtime's job has it",
    "ttl_seconds_after_finished": "a TrainJob has no time to live; see on_finish_action",
    "elastic_policy": "Trainer has no elastic jobs since 2.2",
    "gang": "the runtime's podGroupPolicy says it",
    "master": "all nodes of a TrainJob are alike",
    "worker": "all nodes of a TrainJob are alike",
}


def render(
    job: TrainingJob,
    *,
    owner: Owner,
    attempt: int,
    exact_name: bool = False,
    installation: Installation | None = None,
) -> Rendered:
    """Return the TrainJob of one attempt, in the newest version of its API; see `Kind.render`.

    Raises:
        InvalidSpec: a TrainJob does not support a field, or an output is on no claim.
    """
    _check_fields(job)
    installation = installation or Installation()
    this = Attempt(job=job, owner=owner, number=attempt, exact_name=exact_name, installation=installation)
    asked = _asked(job, installation.template)
    asked = with_name(asked, this, longest=_longest_name(asked))
    made = rendered(asked, [_pods(asked, this)], this, together=_with_template, finished=_told_rank(asked, job))
    check_metadata("metadata", made.manifest["metadata"])
    return made


def _longest_name(asked: Manifest) -> int:
    """Return the maximum length of the job's name: JobSet refuses names that make any step's pod name too long."""
    steps = [f"{part}-initializer" for part in asked["spec"].get("initializer") or ()]
    return _LONGEST_POD - max(len(f"-{step}-0-{_nodes(asked) - 1}{_DRAWN}") for step in (STEP, *steps))


def _pods(asked: Manifest, attempt: Attempt) -> Pods:
    """Return the pods; all nodes are alike."""
    own, name = template_of(asked["spec"]), asked["metadata"]["name"]
    check_pod_shape("spec", own["spec"])
    template = pods_asked_for(own, attempt.job, attempt.installation.template, role="worker", container=CONTAINER)
    template = with_code(template, attempt.job.code, has_own_runtime=_is_own(asked["spec"]["runtimeRef"]))
    return Pods(role=STEP, key=STEP, first=f"{name}-{STEP}-0-0", container=CONTAINER, template=template)


def _with_template(asked: Manifest, templates: Sequence[Manifest]) -> Manifest:
    [template] = templates
    check_labels("template.metadata", template.get("metadata") or {})
    return {**asked, "spec": with_template(asked["spec"], template)}


def _told_rank(asked: Manifest, job: TrainingJob) -> Callable[[Manifest], Manifest]:
    """Return the change that adds the rank's variables; none for a user's own manifest."""
    if job.manifest is not None:
        return lambda template: template
    return lambda template: podtemplate.map_container(template, CONTAINER, lambda found: _with_rank(found, asked))


def _is_own(runtime: Mapping[str, Any]) -> bool:
    """Return whether the runtime is not Trainer's own; one of the namespace never is."""
    return runtime.get("kind") == "TrainingRuntime" or runtime.get("name") != DEFAULT_RUNTIME


def _check_fields(job: TrainingJob) -> None:
    """Reject fields without a place in a TrainJob; new fields are rejected until they get one here."""
    if job.clean_pod_policy not in {None, "Running"}:
        raise InvalidSpec.of("clean_pod_policy", job.clean_pod_policy, "a TrainJob's end stops what runs: Running")
    for field in fields(job):
        if field.name in _OF_JOB | _OF_PODS | {"clean_pod_policy"} or getattr(job, field.name) is None:
            continue
        raise InvalidSpec(f"{field.name}: a TrainJob has no place for it; {_WHY_NOT.get(field.name, 'leave it out')}")
    for variable in job.env or ():
        if variable.name in _RESERVED:
            raise InvalidSpec(f"env.{variable.name}: Trainer sets it in every pod; leave it out")


def _asked(job: TrainingJob, under: TrainingJob | None) -> Manifest:
    """Return the requested object without its pods."""
    found = _skeleton(job) if job.manifest is None else _given(job.manifest)
    spec = found["spec"]
    trainer = {**mapping("spec.trainer", spec.get("trainer") or {})}
    if job.workers is not None:
        trainer["numNodes"] = job.workers
    if job.nproc_per_node is not None:
        trainer |= _processes(job.nproc_per_node)
    runtime = reference(job.runtime or (under.runtime if under and job.manifest is None else None))
    changes = {"suspend": job.suspend, "activeDeadlineSeconds": job.active_deadline_seconds, "runtimeRef": runtime}
    said = {name: part for name, part in changes.items() if part is not None}
    queue = {} if job.queue_name is None else {QUEUE_LABEL: job.queue_name}
    whole = {**found, "spec": {**spec, **said, "trainer": trainer}}
    return podtemplate.with_metadata(whole, labels={**(job.labels or {}), **queue}, annotations=job.annotations or {})


def _skeleton(job: TrainingJob) -> Manifest:
    spec = {"runtimeRef": {"name": DEFAULT_RUNTIME}, "trainer": {"numNodes": job.pods}}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {}, "spec": spec}


def _given(manifest: Manifest) -> Manifest:
    given = copy.deepcopy(manifest)
    mapping("metadata", given.get("metadata") or {})
    spec = mapping("spec", given.get("spec"))
    mapping("spec.runtimeRef", spec.get("runtimeRef"))
    asked = in_newest_words(without_queues_word(spec))
    return {**without_servers_word({**given, "metadata": given.get("metadata") or {}}), "spec": asked}


def _processes(number: int | str) -> Manifest:
    if number == "auto":
        return {}
    if isinstance(number, str):
        raise InvalidSpec.of("nproc_per_node", number, "a number, or auto: Trainer counts by itself since 2.2")
    return {"numProcPerNode": number}


def _nodes(asked: Mapping[str, Any]) -> int:
    return int(asked["spec"]["trainer"].get("numNodes") or 1)


def _with_rank(container: Manifest, asked: Mapping[str, Any]) -> Manifest:
    """Return the training container with the variables that `env://` needs: Trainer gives them to torchrun alone."""
    name, trainer = asked["metadata"]["name"], asked["spec"]["trainer"]
    found: dict[str, Manifest] = {
        "MASTER_ADDR": {"value": f"{name}-{STEP}-0-0.{name}"},
        "MASTER_PORT": {"value": str(_MASTER_PORT)},
        "WORLD_SIZE": {"value": str(_nodes(asked) * int(trainer.get("numProcPerNode") or 1))},
        "RANK": {"valueFrom": {"fieldRef": {"fieldPath": _INDEX}}},
    }
    given = container.get("env") or []
    said = {each["name"] for each in given}
    ours = [{"name": variable, **value} for variable, value in found.items() if variable not in said]
    return {**container, "env": [*ours, *given]}
