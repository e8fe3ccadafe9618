"""Render a PyTorchJob from typed fields or a user's manifest."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kinds import pod_template
from ptjob_provider.core.kinds.kind import count
from ptjob_provider.core.kinds.merge import laid_over
from ptjob_provider.core.kinds.pytorchjob.validate import API_VERSION, CONTAINER, KIND, ROLES, check_shape, validate
from ptjob_provider.core.kinds.queue import QUEUE_LABEL
from ptjob_provider.core.kinds.rendering import Attempt, Pods, rendered, with_code, with_name, without_servers_word
from ptjob_provider.core.spec import Installation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.identity import Manifest, Owner
    from ptjob_provider.core.kinds.kind import Rendered
    from ptjob_provider.core.spec import ElasticPolicy, TrainingJob
    from ptjob_provider.core.spec.job import Role

VOLCANO = "volcano"
"""The scheduler with its own queues."""

DEFAULT_TTL = 7 * 24 * 3600
"""Default TTL in seconds; long enough to investigate a failure after a weekend."""

_DEFAULTS: Manifest = {"cleanPodPolicy": "Running", "ttlSecondsAfterFinished": DEFAULT_TTL}
"""Parts of the run policy of typed fields."""

_OPERATOR_ENV = {
    *("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"),
    *("PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE"),
}


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
    requested = with_name(_requested(job, installation.template), this)
    validate(requested)
    made = rendered(requested, with_code(_pods(requested), this), this, put_back=_with_templates)
    if installation.change_pod is not None:
        validate(made.manifest)
    return made


def _requested(job: TrainingJob, under: TrainingJob | None) -> Manifest:
    """Return the requested object, with no additions but the defaults of typed fields.

    Layers from the lowest to the highest: defaults, the installation's template, the job's `pod_template`, its
    manifest, its typed fields. A manifest keeps every field that nothing overrides, known here or not, except the API
    server's own.

    Raises:
        InvalidSpec: the manifest has not the shape of a PyTorchJob, or a typed variable is the operator's own.
    """
    _check_env(job)
    own = _skeleton(job) if job.manifest is None else _given(job.manifest)
    replicas = _replicas(own["spec"], job, under)
    whole = {**own, "spec": {**own["spec"], "pytorchReplicaSpecs": replicas}}
    is_volcano = any(each["template"]["spec"].get("schedulerName") == VOLCANO for each in replicas.values())
    if under is not None:
        _check_env(under)
        sizes = {role: {name: each[name] for name in each if name == "replicas"} for role, each in replicas.items()}
        added = _with_fields({"metadata": {}, "spec": {"pytorchReplicaSpecs": sizes}}, under, is_volcano=is_volcano)
        whole = laid_over(whole, added) if job.manifest is None else laid_over(added, whole)
    return _with_fields(whole, job, is_volcano=is_volcano)


def _skeleton(job: TrainingJob) -> Manifest:
    """Return the object of typed fields before they are filled in."""
    pods = {"master": 1, "worker": job.pods if job.elastic_policy else job.pods - 1}
    bare = {"spec": {"containers": [{"name": CONTAINER}]}}
    restarts = "OnFailure" if job.elastic_policy else "Never"
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {},
        "spec": {
            "pytorchReplicaSpecs": {
                role.capitalize(): {"replicas": pods[role], "restartPolicy": restarts, "template": bare}
                for role in job.roles
            },
        },
    }


def _given(manifest: Manifest) -> Manifest:
    given = copy.deepcopy(manifest)
    check_shape(given)
    return without_servers_word(given)


def _replicas(spec: Mapping[str, Any], job: TrainingJob, under: TrainingJob | None) -> Manifest:
    """Return the roles with their numbers of pods and their pods' templates."""
    found = spec["pytorchReplicaSpecs"]
    if job.workers is not None:
        is_elastic = job.elastic_policy is not None or spec.get("elasticPolicy") is not None
        found = _resized(found, job.workers, elastic=is_elastic)
    if job.master is not None and "Master" not in found:
        raise InvalidSpec.of("master", "set", "left out: the manifest has no Master; use `worker`")
    return {name: {**each, "template": _template(name, each["template"], job, under)} for name, each in found.items()}


def _resized(roles: Mapping[str, Any], workers: int, *, elastic: bool) -> Manifest:
    """Return the roles with this number of pods; a new Worker is a copy of the Master."""
    if "Master" not in roles:
        return {**roles, "Worker": {**roles["Worker"], "replicas": workers}}
    master = {**roles["Master"], "replicas": 1}
    if workers == 1 and not elastic:
        return {"Master": master}
    return {"Master": master, "Worker": {**roles.get("Worker", master), "replicas": workers - 1}}


def _template(name: str, own: Manifest, job: TrainingJob, under: TrainingJob | None) -> Manifest:
    role: Role = "master" if name == "Master" else "worker"
    return pod_template.requested_template(own, job, under, role=role, container=CONTAINER)


def _with_fields(manifest: Manifest, job: TrainingJob, *, is_volcano: bool) -> Manifest:
    """Return the manifest with the job's fields over it, except those of its pods."""
    spec, replicas = manifest["spec"], manifest["spec"]["pytorchReplicaSpecs"]
    restarts = _set({"restartPolicy": job.restart_policy})
    changes = {
        "runPolicy": _run_policy(spec.get("runPolicy") or {}, job, replicas, is_volcano=is_volcano),
        "nprocPerNode": None if job.nproc_per_node is None else str(job.nproc_per_node),
        "elasticPolicy": _elastic_policy(spec.get("elasticPolicy"), job),
        "pytorchReplicaSpecs": {role: {**replica, **restarts} for role, replica in replicas.items()},
    }
    queue = {} if job.queue_name is None or is_volcano else {QUEUE_LABEL: job.queue_name}
    labels = {**(job.labels or {}), **queue}
    kept = {name: part for name, part in spec.items() if name != "pytorchReplicaSpecs"}
    whole = {**manifest, "spec": {**kept, **_set(changes)}}
    return pod_template.with_metadata(whole, labels=labels, annotations=job.annotations or {})


def _run_policy(found: Manifest, job: TrainingJob, replicas: Mapping[str, Any], *, is_volcano: bool) -> Manifest | None:
    typed = {
        "cleanPodPolicy": job.clean_pod_policy,
        "backoffLimit": job.backoff_limit,
        "activeDeadlineSeconds": job.active_deadline_seconds,
        "ttlSecondsAfterFinished": job.ttl_seconds_after_finished,
        "suspend": job.suspend,
    }
    defaults = _DEFAULTS if job.manifest is None else {}
    unset = {name: part for name, part in defaults.items() if typed[name] is None and name not in found}
    changes = _set({**typed, **unset})
    if job.gang is not None:
        others = {k: v for k, v in (found.get("schedulingPolicy") or {}).items() if k != "minAvailable"}
        size = {"minAvailable": sum(map(count, replicas.values()))} if job.gang else {}
        changes["schedulingPolicy"] = {**others, **size}
    if job.queue_name is not None and is_volcano:
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


def _check_env(job: TrainingJob) -> None:
    """Reject variables that the operator would silently replace: it appends its own after the user's."""
    for prefix, owner in (("", job), ("master.", job.master), ("worker.", job.worker)):
        for variable in (owner.env if owner else None) or ():
            if variable.name in _OPERATOR_ENV:
                raise InvalidSpec(f"{prefix}env.{variable.name}: training-operator sets it in every pod; leave it out")


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
