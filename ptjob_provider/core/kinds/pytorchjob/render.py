"""Render a PyTorchJob from typed fields or a user's manifest, and patches (RFC 7386) of an existing one."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kinds import pod_template
from ptjob_provider.core.kinds.merge import laid_over
from ptjob_provider.core.kinds.ownership import NO_ISTIO, QUEUE_LABEL, Attempt, with_name, without_servers_word
from ptjob_provider.core.kinds.pytorchjob.read import count
from ptjob_provider.core.kinds.pytorchjob.validate import API_VERSION, CONTAINER, KIND, ROLES, check_shape, validate
from ptjob_provider.core.kinds.rendering import Pods, rendered, with_code
from ptjob_provider.core.kinds.validate import check_pod_shape, with_training_container
from ptjob_provider.core.spec import Installation, VolumeMount
from ptjob_provider.core.spec.pods import DEFAULT_SHARED_MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ptjob_provider.core.identity import Manifest, Owner
    from ptjob_provider.core.kinds.kind import Rendered
    from ptjob_provider.core.spec import ElasticPolicy, TrainingJob

VOLCANO = "volcano"
"""The scheduler with its own queues."""

DEFAULT_TTL = 7 * 24 * 3600
"""Default TTL in seconds; long enough to investigate a failure after a weekend."""

_OPERATOR_ENV = {
    *("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"),
    *("PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE"),
}


def requested(job: TrainingJob, template: TrainingJob | None = None) -> Manifest:
    """Return the requested object, with no additions but the defaults of typed fields.

    Layers from the lowest to the highest: the installation's template, the job's `pod_template`, its manifest, its
    typed fields. A manifest keeps every field that nothing overrides, known here or not, except the API server's own.

    Raises:
        InvalidSpec: the manifest has not the shape of a PyTorchJob, or a typed variable is the operator's own.
    """
    _check_env(job)
    asked = _skeleton(job) if job.manifest is None else _given(job.manifest)
    roles = asked["spec"]["pytorchReplicaSpecs"]
    under = [*_of_installation(template, roles), *_of_pods(job.pod_template, roles)]
    layers = [asked, *under] if job.manifest is None else [*under, asked]
    found = reduce(laid_over, layers)
    return _overlaid(found, _with_defaults(job, found) if job.manifest is None else job)


def _given(manifest: Manifest) -> Manifest:
    given = copy.deepcopy(manifest)
    check_shape(given)
    return without_servers_word(given)


def _of_installation(template: TrainingJob | None, roles: Mapping[str, Any]) -> Iterator[Manifest]:
    """Return the installation's template as a job with these roles."""
    if template is None:
        return
    _check_env(template)
    yield from _of_pods(template.pod_template, roles)
    bare = {"metadata": {}, "spec": {"containers": [{"name": CONTAINER}]}}
    yield _overlaid(_of_templates(bare, roles), template)


def _of_pods(template: Manifest | None, roles: Mapping[str, Any]) -> Iterator[Manifest]:
    """Return a pod template as a job with these roles."""
    if template is None:
        return
    pod = {
        **template["spec"],
        "containers": with_training_container(template["spec"].get("containers") or [], CONTAINER),
    }
    check_pod_shape("pod_template.spec", pod)
    yield _of_templates({**template, "spec": pod}, roles)


def _of_templates(template: Manifest, roles: Mapping[str, Any]) -> Manifest:
    return {"metadata": {}, "spec": {"pytorchReplicaSpecs": {role: {"template": template} for role in roles}}}


def _check_env(job: TrainingJob) -> None:
    """Reject variables that the operator would silently replace: it appends its own after the user's."""
    for prefix, owner in (("", job), ("master.", job.master), ("worker.", job.worker)):
        for variable in (owner.env if owner else None) or ():
            if variable.name in _OPERATOR_ENV:
                raise InvalidSpec(f"{prefix}env.{variable.name}: training-operator sets it in every pod; leave it out")


def _with_defaults(job: TrainingJob, found: Manifest) -> TrainingJob:
    """Return the job with the defaults of typed fields where neither it nor a lower layer has a value."""
    run = found["spec"].get("runPolicy") or {}
    roles = found["spec"]["pytorchReplicaSpecs"].values()
    is_said = {
        "restart_policy": all(role.get("restartPolicy") for role in roles),
        "clean_pod_policy": "cleanPodPolicy" in run,
        "ttl_seconds_after_finished": "ttlSecondsAfterFinished" in run,
        "shared_memory": any(_has_shared_memory(role["template"]) for role in roles) or _mounts_shared_memory(job),
    }
    defaults: Manifest = {
        "restart_policy": "OnFailure" if job.elastic_policy else "Never",
        "clean_pod_policy": "Running",
        "ttl_seconds_after_finished": DEFAULT_TTL,
        "shared_memory": DEFAULT_SHARED_MEMORY,
    }
    unset = {name for name in defaults if getattr(job, name) is None and not is_said[name]}
    return replace(job, **{name: defaults[name] for name in unset})


def _has_shared_memory(template: Manifest) -> bool:
    mounts = pod_template.volume_mounts(template, container=CONTAINER)
    return pod_template.SHARED_MEMORY_PATH in {mount["mountPath"] for mount in mounts}


def _mounts_shared_memory(job: TrainingJob) -> bool:
    claims = [volume.mount_path for volume in job.volumes or () if isinstance(volume, VolumeMount)]
    return pod_template.SHARED_MEMORY_PATH in {*claims, *(mount["mountPath"] for mount in job.volume_mounts or ())}


def _skeleton(job: TrainingJob) -> Manifest:
    template: Manifest = {"metadata": {"annotations": NO_ISTIO}, "spec": {"containers": [{"name": CONTAINER}]}}
    pods = {"master": 1, "worker": job.pods if job.elastic_policy else job.pods - 1}
    roles = {role.capitalize(): {"replicas": pods[role], "template": template} for role in job.roles}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {}, "spec": {"pytorchReplicaSpecs": roles}}


def _overlaid(manifest: Manifest, job: TrainingJob) -> Manifest:
    spec = manifest["spec"]
    roles = _roles(spec, job)
    changes = {
        "runPolicy": _run_policy(spec.get("runPolicy") or {}, job, pods=sum(map(count, roles.values()))),
        "nprocPerNode": None if job.nproc_per_node is None else str(job.nproc_per_node),
        "elasticPolicy": _elastic_policy(spec.get("elasticPolicy"), job),
    }
    kept = {name: value for name, value in spec.items() if name != "pytorchReplicaSpecs"}
    whole = {**kept, **_set(changes), "pytorchReplicaSpecs": roles}
    is_kueues = job.queue_name is not None and job.scheduler_name != VOLCANO
    labels = {**(job.labels or {}), **({QUEUE_LABEL: str(job.queue_name)} if is_kueues else {})}
    return pod_template.with_metadata({**manifest, "spec": whole}, labels=labels, annotations=job.annotations or {})


def _roles(spec: Mapping[str, Any], job: TrainingJob) -> Manifest:
    elastic = job.elastic_policy is not None or spec.get("elasticPolicy") is not None
    found = spec["pytorchReplicaSpecs"]
    roles = found if job.workers is None else _resized(found, job.workers, elastic=elastic)
    if job.master is not None and "Master" not in roles:
        raise InvalidSpec.of("master", "set", "left out: the manifest has no Master; use `worker`")
    return {role: _role(replica, job, role) for role, replica in roles.items()}


def _resized(roles: Mapping[str, Any], workers: int, *, elastic: bool) -> Manifest:
    """Return the roles with this number of pods; a new Worker is a copy of the Master."""
    if "Master" not in roles:
        return {**roles, "Worker": {**roles["Worker"], "replicas": workers}}
    master = {**roles["Master"], "replicas": 1}
    if workers == 1 and not elastic:
        return {"Master": master}
    return {"Master": master, "Worker": {**roles.get("Worker", master), "replicas": workers - 1}}


def _role(replica: Manifest, job: TrainingJob, role: str) -> Manifest:
    fields = job.role("master" if role == "Master" else "worker")
    template = pod_template.overlaid(replica["template"], job, fields, container=CONTAINER)
    kept = {name: value for name, value in replica.items() if name != "template"}
    return {**kept, **_set({"restartPolicy": job.restart_policy}), "template": template}


def _run_policy(found: Manifest, job: TrainingJob, *, pods: int) -> Manifest | None:
    changes = _set(
        {
            "cleanPodPolicy": job.clean_pod_policy,
            "backoffLimit": job.backoff_limit,
            "activeDeadlineSeconds": job.active_deadline_seconds,
            "ttlSecondsAfterFinished": job.ttl_seconds_after_finished,
            "suspend": job.suspend,
        }
    )
    if job.gang is not None:
        others = {k: v for k, v in (found.get("schedulingPolicy") or {}).items() if k != "minAvailable"}
        changes["schedulingPolicy"] = {**others, **({"minAvailable": pods} if job.gang else {})}
    if job.queue_name is not None and job.scheduler_name == VOLCANO:
        policy: Manifest = changes.get("schedulingPolicy") or found.get("schedulingPolicy") or {}
        changes["schedulingPolicy"] = {**policy, "queue": job.queue_name}
    return {**found, **changes} if changes else found or None


def _elastic_policy(found: Manifest | None, job: TrainingJob) -> Manifest | None:
    policy = {**(found or {}), **(_elastic_wire(job.elastic_policy) if job.elastic_policy else {})}
    if job.nproc_per_node is not None:
        policy.pop("nProcPerNode", None)  # the same setting at its deprecated path
    return policy if found is not None or job.elastic_policy is not None else None


def _elastic_wire(policy: ElasticPolicy) -> Manifest:
    conf = policy.rdzv_conf
    return _set(
        {
            "minReplicas": policy.min_replicas,
            "maxReplicas": policy.max_replicas,
            "maxRestarts": policy.max_restarts,
            "rdzvBackend": policy.rdzv_backend,
            "rdzvHost": policy.rdzv_host,
            "rdzvPort": policy.rdzv_port,
            "rdzvId": policy.rdzv_id,
            "rdzvConf": None if conf is None else [{"key": key, "value": value} for key, value in conf.items()],
            "standalone": policy.standalone,
        }
    )


def _set(fields: Mapping[str, Any]) -> Manifest:
    return {name: value for name, value in fields.items() if value is not None}


def render(
    job: TrainingJob,
    *,
    owner: Owner,
    attempt: int,
    exact_name: bool = False,
    installation: Installation | None = None,
) -> Rendered:
    """Return the object of one attempt.

    Adds to the requested object: name, namespace and owner, the owner's labels (on the pods too) and annotations, the
    `PTJOB_*` variables first in the training container, mounts for declared outputs whose claim is not mounted, the
    sync container, and FallbackToLogsOnError - and nothing else.

    Args:
        job: the specification.
        owner: its owner.
        attempt: 1 for the first.
        exact_name: keep the name unchanged, without a hash of owner and attempt.
        installation: additions to every job; its change of the pods is not part of the specification and its hash.

    Raises:
        InvalidSpec: the operator would refuse it, or an output is on no claim.
    """
    if job.runtime is not None:
        raise InvalidSpec.of("runtime", job.runtime, "left out: a PyTorchJob has none; or kind=TrainJob")
    installation = installation or Installation()
    this = Attempt(job=job, owner=owner, number=attempt, exact_name=exact_name, installation=installation)
    asked = with_name(requested(job, installation.template), this)
    validate(asked)
    made = rendered(asked, with_code(_pods(asked), this), this, together=_with_templates)
    if installation.change_pod is not None:
        validate(made.manifest)
    return made


def _pods(manifest: Manifest) -> list[Pods]:
    """Return the pods of each role, rank 0's first."""
    name, roles = manifest["metadata"]["name"], manifest["spec"]["pytorchReplicaSpecs"]
    return [
        Pods(
            role=role,
            key=role.lower(),
            first=f"{name}-{role.lower()}-0",
            container=CONTAINER,
            template=roles[role]["template"],
        )
        for role in ROLES
        if role in roles
    ]


def _with_templates(manifest: Manifest, templates: Sequence[Manifest]) -> Manifest:
    """Return the manifest with new templates, one per role, rank 0's first."""
    spec, roles = manifest["spec"], manifest["spec"]["pytorchReplicaSpecs"]
    found = dict(zip((role for role in ROLES if role in roles), templates, strict=True))
    changed = {role: {**replica, "template": found[role]} for role, replica in roles.items()}
    return {**manifest, "spec": {**spec, "pytorchReplicaSpecs": changed}}


STOP_RUNNING_PODS: Manifest | None = {"spec": {"runPolicy": {"cleanPodPolicy": "Running"}}}
"""The operator's default leaves the other replicas of an ended job running (training-operator #1579)."""

DELETION = "Foreground"

_POLICIES_THAT_STOP = {"Running", "All"}


def stops_by_itself(job: Mapping[str, Any]) -> bool:
    """Return whether its policy makes the operator stop the remaining pods when the job ends."""
    return _policy_of(job).get("cleanPodPolicy") in _POLICIES_THAT_STOP


def suspended(*, suspend: bool) -> Manifest:
    """Return the patch that suspends or resumes the job."""
    return {"spec": {"runPolicy": {"suspend": suspend}}}


def expiring(job: Mapping[str, Any]) -> Manifest | None:
    """Return the patch that sets the default TTL on an ended job; None if it has one."""
    if expires(job):
        return None
    return {"spec": {"runPolicy": {"ttlSecondsAfterFinished": DEFAULT_TTL}}}


def expires(job: Mapping[str, Any]) -> bool:
    """Return whether the job has a TTL, after which its operator deletes it."""
    return _policy_of(job).get("ttlSecondsAfterFinished") is not None


def _policy_of(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the run policy, which the old operator's CRD has at the top of the spec."""
    found: Mapping[str, Any] = job["spec"].get("runPolicy") or job["spec"]
    return found
