"""PyTorchJob of `kubeflow.org/v1`, as run by training-operator 1.4 to 1.9, or by the old PyTorch operator.

Arena still installs the old operator's CRD. It is `kubeflow.org/v1`, too, but has the run policy's fields at the top of
the spec. A server that prunes unknown fields would drop a `runPolicy` without an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec, one_of
from ptjob_provider.core.identity import check_name
from ptjob_provider.core.kinds import pod_template
from ptjob_provider.core.kinds.kind import (
    Kind,
    Pods,
    assembled,
    check_env,
    numbered,
    status_of,
    template_in,
    true_conditions,
    with_code,
    with_name,
    without_server_fields,
)
from ptjob_provider.core.kinds.pod_template import (
    POD_SHAPE,
    check_labels,
    check_shape,
    count,
    items,
    laid_over,
    placed,
)
from ptjob_provider.core.kinds.queue import label_of
from ptjob_provider.core.spec import TrainingJob
from ptjob_provider.core.spec.parsers import MAX_PODS, unknown_field
from ptjob_provider.core.spec.places import field_at
from ptjob_provider.core.spec.pods import check_within, quantity
from ptjob_provider.core.status import JobPhase, JobStatus, later, parse_instant

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kinds.kind import Attempt, Rendered, Replica
    from ptjob_provider.core.spec.job import Role

KIND = "PyTorchJob"
API_VERSION = "kubeflow.org/v1"

CONTAINER = "pytorch"
"""Name of the training container; the operator accepts no other name."""

ROLES = ("Master", "Worker")
ROLES_PATH = "spec.pytorchReplicaSpecs"

_RESTART_POLICIES = ("Never", "OnFailure", "ExitCode", "Always")
_CLEAN_POD_POLICIES = ("Running", "All", "None")
_RDZV_BACKENDS = ("c10d", "etcd", "etcd-v2")
_MANAGERS = ("kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue")
_NPROC = re.compile(r"auto|cpu|gpu|[1-9][0-9]*")
_LONGEST_SERVICE = 63
_WITHOUT_GANGS = {None, "", "default-scheduler"}
"""Schedulers that read no `minAvailable`."""

VOLCANO = "volcano"
"""Name of the scheduler that has queues of its own."""

DEFAULT_TTL = 7 * 24 * 3600
"""Default TTL in seconds; long enough to investigate a failure after a weekend."""

_DEFAULTS: Mapping[str, Any] = {"clean_pod_policy": "Running", "ttl_seconds_after_finished": DEFAULT_TTL}
"""Default fields of a job without a manifest."""

_ORDER = ("runPolicy", "nprocPerNode", "elasticPolicy", "pytorchReplicaSpecs")
"""Parts of the spec, in the order in which readers see them."""

_OPERATOR_ENV = {
    *("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"),
    *("PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE"),
}


_DECISIONS = (
    ("Failed", JobPhase.FAILED),
    ("Succeeded", JobPhase.SUCCEEDED),
    ("Suspended", JobPhase.SUSPENDED),
    ("Restarting", JobPhase.RUNNING),
    ("Running", JobPhase.RUNNING),
    ("Created", JobPhase.PENDING),
)
"""Conditions and their phases; the first true condition decides. Failed comes first: it is final, while an elastic job
that has succeeded can still fail. Restarting stays true after an end, so both ends come before it."""


class PyTorchJob(Kind):
    """PyTorchJob of `kubeflow.org/v1`. Reasons of conditions differ between versions, so that only types are read."""

    KIND = KIND
    API_VERSION = API_VERSION
    PLURAL = "pytorchjobs"
    OPERATOR = "the training-operator"
    CONTAINER = CONTAINER
    HAS_FIXED_POD_NAMES = True
    POD_LABEL = "training.kubeflow.org/job-name"
    OLD_POD_LABEL = "pytorch-job-name"
    TAKES_POLICY = True
    OPERATORS_LABELS = frozenset({"training.kubeflow.org/", OLD_POD_LABEL})
    STOP_RUNNING_PODS = {"spec": {"runPolicy": {"cleanPodPolicy": "Running"}}}  # noqa: RUF012 - never changed
    """The operator's default leaves the other replicas of an ended job running (training-operator #1579)."""

    def read_status(self, job: Mapping[str, Any]) -> JobStatus:
        """Derive the job's status from its object; an object without conditions is pending."""
        status, true = job.get("status") or {}, true_conditions(job)
        kind, phase = next((each for each in _DECISIONS if each[0] in true), ("", JobPhase.PENDING))
        times = {"started": status.get("startTime"), "ended": status.get("completionTime")}
        return status_of(job, phase, true.get(kind, {}), **times)

    def running_since(self, job: Mapping[str, Any]) -> datetime | None:
        """Return the start of the job's current run; None if it has not started.

        The condition `Running` becomes False at the job's end and keeps its time. Suspending the job changes both the
        condition's time and its reason.
        """
        conditions = (job.get("status") or {}).get("conditions") or []
        starts = (each for each in conditions if each["type"] == "Running")
        start: Mapping[str, Any] = next(
            (each for each in starts if not (each.get("reason") or "").endswith("Suspended")), {}
        )
        return parse_instant(start.get("lastTransitionTime"))

    def due_at(self, job: Mapping[str, Any]) -> datetime | None:
        """Return the end of the job's own deadline; None if it has none, has not started or has ended."""
        seconds = _policy_of(job).get("activeDeadlineSeconds")
        status = self.read_status(job)
        if seconds is None or status.started_at is None or status.phase.is_terminal:
            return None
        return later(status.started_at, seconds)

    def least(self, job: Mapping[str, Any]) -> int | None:
        """Return the number of replicas with which an elastic job trains; None for all."""
        elastic = job["spec"].get("elasticPolicy") or {}
        return elastic.get("minReplicas") or elastic.get("maxReplicas")

    def replicas(self, manifest: Mapping[str, Any]) -> tuple[Replica, ...]:
        """Return all replicas of the job, rank 0 first: the master if there is one, else worker 0."""
        roles = ((role.lower(), spec) for role, spec in _roles(manifest).items())
        return tuple(numbered(manifest["metadata"]["name"], roles))

    def stops_by_itself(self, job: Mapping[str, Any]) -> bool:
        """Return whether the job's policy makes the operator stop the remaining pods when the job ends."""
        return _policy_of(job).get("cleanPodPolicy") in {"Running", "All"}

    def expiring(self, job: Mapping[str, Any]) -> Manifest | None:
        """Return the patch that sets the default TTL on an ended job; None if the job has a TTL."""
        if self.expires(job):
            return None
        return {"spec": {"runPolicy": {"ttlSecondsAfterFinished": DEFAULT_TTL}}}

    def expires(self, job: Mapping[str, Any]) -> bool:
        """Return whether the job has a TTL, after which the operator deletes it."""
        return _policy_of(job).get("ttlSecondsAfterFinished") is not None

    def priority(self, manifest: Mapping[str, Any]) -> str:
        """Return the priority class of the pods, else of the gang."""
        policy = (manifest["spec"].get("runPolicy") or {}).get("schedulingPolicy") or {}
        pod = self.rank0_template(manifest).get("spec") or {}
        return str(pod.get("priorityClassName") or policy.get("priorityClass") or "")

    def templates(self, manifest: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Yield the template of every role, rank 0's first."""
        yield from map(template_in, _roles(manifest).values())

    def build(self, attempt: Attempt) -> Rendered:
        """Return the object of one attempt.

        Adds to the requested object: name, namespace and owner, the owner's labels (on the pods too) and annotations,
        the `PTJOB_*` variables first in the training container, mounts for declared outputs whose claim is not mounted,
        the sync container, and FallbackToLogsOnError. Nothing else is added.

        Raises:
            InvalidSpec: the operator would refuse it, or an output is on no claim.
        """
        job, installation = attempt.job, attempt.installation
        requested = with_name(_requested(job, installation.template), attempt)
        validate(requested, name="metadata.name" if job.name is None else "name")
        made = assembled(requested, with_code(_pods(requested), attempt), attempt, put_back=_with_templates)
        if installation.change_pod is not None:
            validate(made.manifest)
        return replace(made, changes=(*made.changes, *_unexpected(made.manifest)))

    def converted_for(self, manifest: Manifest, fields: frozenset[str]) -> Manifest:
        """Return the job, or a patch, converted for a server with these fields in a PyTorchJob's spec.

        Raises:
            InvalidSpec: a part has no equivalent; the text names the field.
        """
        spec = manifest.get("spec") or {}
        if not fields or "runPolicy" in fields:
            return manifest
        run = {name: part for name, part in (spec.get("runPolicy") or {}).items() if part is not None}
        paths = [f"runPolicy.{name}" for name, part in run.items() if name not in _AT_THE_TOP and part is not False]
        for path in [*paths, *(spec.keys() & {"elasticPolicy", "nprocPerNode"})]:
            raise InvalidSpec.at(field_at(TrainingJob, path, KIND) or path, _WHY_NOT)
        kept = {name: part for name, part in spec.items() if name != "runPolicy"}
        moved = {name: part for name, part in run.items() if name in _AT_THE_TOP}
        return {**manifest, "spec": {**kept, **moved}} if spec else manifest

    def is_older(self, job: Mapping[str, Any]) -> bool:
        """Return whether the object is the old PyTorch operator's, which has run policy fields at the top of the spec.

        A job without any of these fields counts as the training-operator's.
        """
        return bool(_AT_THE_TOP & (job.get("spec") or {}).keys())


def _unexpected(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the operator makes of the job against its words: it accepts them and says so in no condition."""
    roles = _roles(manifest)
    for role, each in roles.items():
        written, policy = each["template"]["spec"].get("restartPolicy"), each.get("restartPolicy") or "OnFailure"
        if written not in {None, "Never" if policy == "ExitCode" else policy}:
            path = f"{ROLES_PATH}.{role}"
            why = f"has no effect; the pods get {policy} from {path}.restartPolicy, so set that one"
            yield f"{path}.template.spec.restartPolicy: {written} {why}"
    if [*roles] == ["Worker"] and count(roles["Worker"]) > 1 and not manifest["spec"].get("elasticPolicy"):
        yield (
            f"{ROLES_PATH}: without a Master or an elasticPolicy the pods get no MASTER_ADDR, RANK or WORLD_SIZE: each "
            "worker trains alone, unless the program finds the others by itself"
        )


def _roles(manifest: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the specification of each role, rank 0's first."""
    specs = manifest["spec"]["pytorchReplicaSpecs"]
    return {role: specs[role] for role in ROLES if role in specs}


def _requested(job: TrainingJob, under: TrainingJob | None) -> Manifest:
    """Return the requested object, with no additions but the defaults of typed fields.

    Layers from the lowest to the highest: defaults, the installation's template, the job's `pod_template`, its
    manifest, its typed fields. A manifest keeps every field that nothing overrides, known here or not, except the API
    server's own.

    Raises:
        InvalidSpec: the manifest does not have the shape of a PyTorchJob, or `env` has a variable of the operator.
    """
    check_env(job, _OPERATOR_ENV, by="training-operator")
    own = _skeleton(job) if job.manifest is None else _given(job.manifest)
    replicas = _replicas(own["spec"], job, under)
    whole = {**own, "spec": {**own["spec"], "pytorchReplicaSpecs": replicas}}
    is_volcano = any(each["template"]["spec"].get("schedulerName") == VOLCANO for each in replicas.values())
    if under is not None:
        check_env(under, _OPERATOR_ENV, by="training-operator")
        sizes = {role: {name: each[name] for name in each if name == "replicas"} for role, each in replicas.items()}
        added = _with_fields({"metadata": {}, "spec": {"pytorchReplicaSpecs": sizes}}, under, is_volcano=is_volcano)
        whole = laid_over(whole, added) if job.manifest is None else laid_over(added, whole)
    return _with_fields(whole, _with_defaults(job, under), is_volcano=is_volcano)


def _with_defaults(job: TrainingJob, under: TrainingJob | None) -> TrainingJob:
    """Return the job with the defaults of a job without a manifest, as far as the installation has no others."""
    if job.manifest is not None:
        return job
    given = {*job.given, *(under.given if under else ())}
    return replace(job, **{name: value for name, value in _DEFAULTS.items() if name not in given})


def _skeleton(job: TrainingJob) -> Manifest:
    """Return the object of a job without a manifest, before its fields are filled in."""
    pods = {"master": 1, "worker": job.pod_count if job.elastic_policy else job.pod_count - 1}
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


def _given(given: Manifest) -> Manifest:
    _check_shape(given)
    return without_server_fields(given)


def _replicas(spec: Mapping[str, Any], job: TrainingJob, under: TrainingJob | None) -> Manifest:
    """Return the roles with the requested numbers of pods and pod templates."""
    roles = spec["pytorchReplicaSpecs"]
    if job.workers is not None:
        is_elastic = job.elastic_policy is not None or spec.get("elasticPolicy") is not None
        roles = _resized(roles, job.workers, elastic=is_elastic)
    if job.master is not None and "Master" not in roles:
        raise InvalidSpec.at("master", "leave it out: the manifest has no Master; use `worker`")
    return {name: {**each, "template": _template(name, each["template"], job, under)} for name, each in roles.items()}


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
    """Return the manifest with the job's fields over it, except the fields of its pods."""
    spec = placed(KIND, manifest["spec"], job)
    if job.elastic_policy is not None:
        spec = placed(KIND, {**spec, "elasticPolicy": spec.get("elasticPolicy") or {}}, job.elastic_policy)
    run = spec.get("runPolicy") or {}
    scheduling = _scheduling(run.get("schedulingPolicy") or {}, job, spec, is_volcano=is_volcano)
    if scheduling is not None:
        spec = {**spec, "runPolicy": {**run, "schedulingPolicy": scheduling}}
    kept = {name: spec[name] for name in manifest["spec"] if name != "pytorchReplicaSpecs"}
    spec = {**kept, **{name: spec[name] for name in _ORDER if name in spec}}
    labels = {**(job.labels or {}), **({} if is_volcano else label_of(job))}
    return pod_template.with_metadata({**manifest, "spec": spec}, labels=labels, annotations=job.annotations or {})


def _scheduling(given: Manifest, job: TrainingJob, spec: Manifest, *, is_volcano: bool) -> Manifest | None:
    """Return the gang's settings; None if no field changes them."""
    queue = {"queue": job.queue_name} if job.queue_name is not None and is_volcano else {}
    if job.gang is None:
        return {**given, **queue} if queue else None
    others = {name: part for name, part in given.items() if name != "minAvailable"}
    size = {"minAvailable": sum(map(count, spec["pytorchReplicaSpecs"].values()))} if job.gang else {}
    return {**others, **size, **queue}


def _pods(manifest: Manifest) -> list[Pods]:
    """Return the pods of each role, rank 0's first."""
    name = manifest["metadata"]["name"]
    return [
        Pods(
            role=role,
            key=role.lower(),
            first=f"{name}-{role.lower()}-0",
            container=CONTAINER,
            template=spec["template"],
        )
        for role, spec in _roles(manifest).items()
    ]


def _with_templates(manifest: Manifest, templates: Sequence[Manifest]) -> Manifest:
    """Return the manifest with new templates, one per role, rank 0's first."""
    spec, roles = manifest["spec"], _roles(manifest)
    changed = {role: {**roles[role], "template": template} for role, template in zip(roles, templates, strict=True)}
    return {**manifest, "spec": {**spec, "pytorchReplicaSpecs": {**spec["pytorchReplicaSpecs"], **changed}}}


# --- checking


def validate(manifest: Mapping[str, Any], *, name: str = "metadata.name") -> None:
    """Check that the operator would accept and run the job.

    In addition to the webhook's rules, this checks values for which the CRD has no enum, names for which the services
    could not be created, and labels that no pod can have.

    Args:
        manifest: the job's object.
        name: the field that named the job.

    Raises:
        InvalidSpec: the text names the field by its path.
    """
    _check_shape(manifest)
    check_labels("metadata", manifest["metadata"])
    spec = manifest["spec"]
    roles = spec["pytorchReplicaSpecs"]
    for role, replica in roles.items():
        _check_replicas(role, replica)
        _check_word(f"{ROLES_PATH}.{role}.restartPolicy", replica.get("restartPolicy"), _RESTART_POLICIES)
        check_labels(f"{ROLES_PATH}.{role}.template.metadata", replica["template"].get("metadata") or {})
        _check_pod(f"{ROLES_PATH}.{role}.template.spec", replica["template"]["spec"])
    _check_policies(spec, roles)
    _check_length(manifest["metadata"].get("name"), roles, field=name)


_META = {"labels": Mapping, "annotations": Mapping, "name": str, "generateName": str, "namespace": str}
_REPLICA = {"replicas": int, "template!": {"metadata": _META, "spec!": POD_SHAPE}}
_SHAPE = {
    "metadata!": _META,
    "spec!": {
        "runPolicy": {"schedulingPolicy": {"minAvailable": int}},
        "elasticPolicy": {"minReplicas": int, "maxReplicas": int},
        "pytorchReplicaSpecs!": Mapping,
    },
}


def _check_shape(manifest: Mapping[str, Any]) -> None:
    """Check the types of all parts that this package reads; null counts as absent.

    Raises:
        InvalidSpec: the text names the part by its path.
    """
    check_shape("", manifest, _SHAPE)
    roles = manifest["spec"]["pytorchReplicaSpecs"]
    for role in roles:
        if role not in ROLES:
            raise unknown_field(f"{ROLES_PATH}.{role}", role, ROLES)
    check_shape(ROLES_PATH, roles, {f"{role}!": _REPLICA for role in roles})


def _check_replicas(role: str, replica: Mapping[str, Any]) -> None:
    count, path = replica.get("replicas"), f"{ROLES_PATH}.{role}.replicas"
    if role == "Master" and (count != 1 or isinstance(count, bool)):
        raise InvalidSpec.of(path, count, "allowed: 1; it must be written, or training-operator refuses the job")
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_PODS):
        raise InvalidSpec.of(path, count, f"allowed: a whole number, at least 1, at most {MAX_PODS}")


def _check_pod(path: str, pod: Mapping[str, Any]) -> None:
    volumes = [volume["name"] for volume in pod.get("volumes") or []]
    for where, container in [*items(pod, "containers", path), *items(pod, "initContainers", path)]:
        if not container.get("image"):
            raise InvalidSpec.of(f"{where}.image", container.get("image"), "required")
        _check_mounts(where, container, volumes)
        _check_resources(f"{where}.resources", container.get("resources") or {})
    names = [container.get("name") for container in pod["containers"]]
    if CONTAINER not in names:
        raise InvalidSpec.of(f"{path}.containers", names, f"one of them must be named {CONTAINER}")


def _check_resources(path: str, resources: Mapping[str, Any]) -> None:
    requested = {
        part: {name: _quantity(f"{path}.{part}.{name}", size) for name, size in (resources.get(part) or {}).items()}
        for part in ("requests", "limits")
    }
    check_within(path, requested["requests"], requested["limits"])


def _quantity(path: str, size: Any) -> str:
    if isinstance(size, float):
        raise InvalidSpec.of(path, size, f'allowed: a text or a whole number; write it as "{size}"')
    return quantity(path, size)


def _check_mounts(path: str, container: Mapping[str, Any], volumes: list[str]) -> None:
    for where, mount in items(container, "volumeMounts", path):
        if mount["name"] not in volumes:
            raise InvalidSpec.of(
                f"{where}.name", mount["name"], one_of(volumes) if volumes else "the pod has no volumes"
            )


def _check_policies(spec: Mapping[str, Any], roles: Mapping[str, Any]) -> None:
    run, elastic = spec.get("runPolicy") or {}, spec.get("elasticPolicy")
    _check_word("spec.runPolicy.cleanPodPolicy", run.get("cleanPodPolicy"), _CLEAN_POD_POLICIES)
    _check_word("spec.runPolicy.managedBy", run.get("managedBy"), _MANAGERS)
    nproc = spec.get("nprocPerNode")
    if nproc is not None and not (isinstance(nproc, str) and _NPROC.fullmatch(nproc)):
        raise InvalidSpec.of(
            "spec.nprocPerNode", nproc, 'allowed: a text: "auto", "cpu", "gpu" or a number such as "2", quoted'
        )
    gang, pods = (run.get("schedulingPolicy") or {}).get("minAvailable") or 0, sum(map(count, roles.values()))
    schedulers = {each["template"]["spec"].get("schedulerName") for each in roles.values()}
    if gang > pods and schedulers - _WITHOUT_GANGS:
        raise InvalidSpec.of("spec.runPolicy.schedulingPolicy.minAvailable", gang, f"allowed: at most {pods}, all pods")
    if elastic is None:
        return
    if "Worker" not in roles:
        raise InvalidSpec.of(f"{ROLES_PATH}.Worker", None, "required by spec.elasticPolicy")
    if nproc is not None and elastic.get("nProcPerNode") is not None:
        raise InvalidSpec.of(
            "spec.elasticPolicy.nProcPerNode", elastic["nProcPerNode"], "leave it out: spec.nprocPerNode is set"
        )
    _check_word("spec.elasticPolicy.rdzvBackend", elastic.get("rdzvBackend"), _RDZV_BACKENDS)
    least, most = elastic.get("minReplicas"), elastic.get("maxReplicas")
    lowest, highest = least or most or pods, most or least or pods  # as in the operator's setElasticPolicy
    if not lowest <= pods <= highest and not elastic.get("metrics"):  # the operator scales by these
        allowed = f"allowed: {lowest} (`minReplicas`) to {highest} (`maxReplicas`) pods, a Master included"
        raise InvalidSpec.of(f"{ROLES_PATH}.Worker.replicas", count(roles["Worker"]), allowed)


def _check_length(name: str | None, roles: Mapping[str, Any], *, field: str) -> None:
    """Reject a name with which the last replica's service name would be too long: the job would hang (#1101)."""
    if name is None:
        return
    suffixes = [f"-{role.lower()}-{(replica.get('replicas') or 1) - 1}" for role, replica in roles.items()]
    check_name(name, field=field, max_length=_LONGEST_SERVICE - max(map(len, suffixes)))


def _check_word(path: str, value: object, allowed: tuple[str, ...]) -> None:
    if value is not None and value not in allowed:
        raise InvalidSpec.of(path, value, one_of(allowed))


# --- the old operator

_AT_THE_TOP = {"cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit"}
_WHY_NOT = (
    "this cluster has the CRD of the old PyTorch operator, which cannot say it; leave it out, or have the "
    "training-operator installed"
)


def _policy_of(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the run policy, which the old operator's CRD has at the top of the spec."""
    policy: Mapping[str, Any] = job["spec"].get("runPolicy") or job["spec"]
    return policy
