"""Reconcile a job, its conditions and its pods as one pass of training-operator 1.9.4 does. Pure.

A port of `ReconcileJobs`, `ReconcilePods` and `UpdateJobStatus` in their order, with their messages. Where the operator
depends on the order of a Go map, the master comes first here. One deliberate difference: the deadline is enforced on
time; the operator checks it only when something else happens to the job (#3358).

A condition type occurs at most once; a changed condition moves to the end; Running and Restarting remove each other;
Succeeded and Failed set Running to false; after Failed, the conditions no longer change.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.identity import Manifest

ROLES = ("Master", "Worker")
"""Roles in the order of their ranks."""

CONTAINER = "pytorch"
"""Name of the training container, by the kind's rule."""


def defaulted(job: Mapping[str, Any]) -> Manifest:
    """Return a copy with the operator's defaults; roles are in the order of their ranks."""
    full = deepcopy(dict(job))
    spec = full["spec"]
    given = {name.lower(): replica for name, replica in spec["pytorchReplicaSpecs"].items()}
    spec["pytorchReplicaSpecs"] = {role: given[role.lower()] for role in ROLES if role.lower() in given}
    for replica in spec["pytorchReplicaSpecs"].values():
        _set(replica, "replicas", 1)
        _set(replica, "restartPolicy", "OnFailure")
    run_policy = spec["runPolicy"] = spec.get("runPolicy") or {}
    _set(run_policy, "cleanPodPolicy", "None")
    _set_elastic(spec)
    return full


def total_replicas(spec: Mapping[str, Any]) -> int:
    """Return the number of pods of a job with defaults."""
    return sum(replica["replicas"] for replica in spec["pytorchReplicaSpecs"].values())


def _set_elastic(spec: dict[str, Any]) -> None:
    policy = spec.get("elasticPolicy")
    if policy is not None:
        workers = spec["pytorchReplicaSpecs"].get("Worker", {}).get("replicas", 1)
        fallback = next((policy[key] for key in ("minReplicas", "maxReplicas") if policy.get(key) is not None), workers)
        _set(policy, "minReplicas", fallback)
        _set(policy, "maxReplicas", fallback)
    if policy is None or policy.get("nProcPerNode") is None:
        _set(spec, "nprocPerNode", "auto")


def _set(fields: dict[str, Any], key: str, value: object) -> None:
    if fields.get(key) is None:
        fields[key] = value


Status = dict[str, Any]

_RIVALS = {"Running": "Restarting", "Restarting": "Running"}


def has(status: Mapping[str, Any], kind: str) -> bool:
    """Return whether the condition is present and true."""
    return any(
        condition["type"] == kind and condition["status"] == "True" for condition in status.get("conditions", ())
    )


def is_finished(status: Mapping[str, Any]) -> bool:
    """Return whether the job has succeeded or failed."""
    return has(status, "Succeeded") or has(status, "Failed")


def with_condition(
    status: Mapping[str, Any], kind: str, message: str, *, now: datetime, truth: str = "True", reason: str = ""
) -> Status:
    """Return the status with the condition set; the default reason is the operator's for this type."""
    fresh = {
        "type": kind,
        "status": truth,
        "reason": reason or f"PyTorchJob{kind}",
        "message": message,
        "lastUpdateTime": instant(now),
        "lastTransitionTime": instant(now),
    }
    conditions: Sequence[dict[str, Any]] = status.get("conditions", ())
    current = next((condition for condition in conditions if condition["type"] == kind), None)
    if has(status, "Failed") or (current and _same(current, fresh)):
        return dict(status)
    if current and current["status"] == truth:
        fresh["lastTransitionTime"] = current["lastTransitionTime"]
    return {**status, "conditions": [*_others(conditions, kind), fresh]}


def instant(moment: datetime) -> str:
    """Format an instant as the API server does, but with microseconds, to show which replica failed first."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _others(conditions: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    kept = [condition for condition in conditions if condition["type"] not in (kind, _RIVALS.get(kind))]
    if kind not in ("Succeeded", "Failed"):
        return kept
    return [{**condition, "status": "False"} if condition["type"] == "Running" else condition for condition in kept]


def _same(current: dict[str, Any], fresh: dict[str, Any]) -> bool:
    return (current["status"], current["reason"]) == (fresh["status"], fresh["reason"])


ROLE_LABEL = "training.kubeflow.org/replica-type"
INDEX_LABEL = "training.kubeflow.org/replica-index"

_NO_EXIT_CODE = 0xBEEF
_RETRYABLE = 128


@dataclass(frozen=True, kw_only=True)
class Pass:
    """Result of one pass.

    Attributes:
        status: the job's new status.
        create: pods to create, as role and index.
        delete: names of pods to delete.
    """

    status: Status
    create: tuple[tuple[str, int], ...] = ()
    delete: tuple[str, ...] = ()


def created(job: Manifest, now: datetime) -> Status:
    """Return the status of a job that the operator observes for the first time."""
    return with_condition({}, "Created", f"PyTorchJob {job['metadata']['name']} is created.", now=now)


def reconcile(job: Manifest, status: Status, pods: Sequence[Manifest], now: datetime) -> Pass:
    """Return the job's new status, and the pods to create and to delete.

    Args:
        job: with the operator's defaults.
        status: of the last pass.
        pods: all existing pods of the job.
        now: with its time zone.
    """
    policy = job["spec"]["runPolicy"]
    if is_finished(status):
        return Pass(status=_inactive(status), delete=_cleaned(job, pods))
    if policy.get("suspend"):
        return _suspend(job, status, pods, now)
    if has(status, "Suspended"):
        status = _resumed(job, status, now)
    exceeded = _exceeded(job, status, pods, now)
    if exceeded:
        failed = with_condition({"completionTime": instant(now), **status}, "Failed", exceeded, now=now)
        return Pass(status=failed, delete=_cleaned(job, pods))
    return _reconcile_replicas(job, status, pods, now)


def _inactive(status: Status) -> Status:
    counts = status.get("replicaStatuses", {})
    return {**status, "replicaStatuses": {role: {**count, "active": 0} for role, count in counts.items()}}


def _cleaned(job: Manifest, pods: Sequence[Manifest]) -> tuple[str, ...]:
    policy = job["spec"]["runPolicy"]["cleanPodPolicy"]
    if policy == "None":
        return ()
    return tuple(_name(pod) for pod in pods if policy == "All" or _phase(pod) in ("Running", "Pending"))


def _suspend(job: Manifest, status: Status, pods: Sequence[Manifest], now: datetime) -> Pass:
    message = f"PyTorchJob {job['metadata']['name']} is suspended."
    status = _inactive(status)
    if has(status, "Running"):
        status = with_condition(status, "Running", message, now=now, truth="False", reason="PyTorchJobSuspended")
    if not has(status, "Suspended"):
        status = with_condition(status, "Suspended", message, now=now)
    return Pass(status=status, delete=tuple(_name(pod) for pod in pods))


def _resumed(job: Manifest, status: Status, now: datetime) -> Status:
    message = f"PyTorchJob {job['metadata']['name']} is resumed."
    resumed = with_condition(status, "Suspended", message, now=now, truth="False", reason="PyTorchJobResumed")
    return {**resumed, "startTime": instant(now)}


def _exceeded(job: Manifest, status: Status, pods: Sequence[Manifest], now: datetime) -> str:
    name, policy = job["metadata"]["name"], job["spec"]["runPolicy"]
    if _past_backoff_limit(policy, pods):
        return f"Job {name} has failed because it has reached the specified backoff limit"
    deadline, started = policy.get("activeDeadlineSeconds"), status.get("startTime")
    if deadline is not None and started and (now - datetime.fromisoformat(started)).total_seconds() >= deadline:
        return f"Job {name} has failed because it was active longer than specified deadline"
    return ""


def _past_backoff_limit(policy: Mapping[str, Any], pods: Sequence[Manifest]) -> bool:
    limit = policy.get("backoffLimit")
    if limit is None:
        return False
    running = [pod["status"] for pod in pods if _phase(pod) == "Running"]
    kinds = ("initContainerStatuses", "containerStatuses")
    restarts = sum(each["restartCount"] for status in running for kind in kinds for each in status.get(kind, ()))
    return restarts >= max(limit, 1) or (limit == 0 and any(_phase(pod) == "Failed" for pod in pods))


def _reconcile_replicas(job: Manifest, status: Status, pods: Sequence[Manifest], now: datetime) -> Pass:
    status = {"startTime": instant(now), **status}
    create: list[tuple[str, int]] = []
    delete: list[str] = []
    for role, replica in job["spec"]["pytorchReplicaSpecs"].items():
        own = [pod for pod in pods if _role(pod) == role]
        present = {int(pod["metadata"]["labels"][INDEX_LABEL]) for pod in own}
        create += [(role, index) for index in range(replica["replicas"]) if index not in present]
        failed = [pod for pod in own if _phase(pod) == "Failed" and replica["restartPolicy"] != "Never"]
        delete += [_name(pod) for pod in failed if _is_replaced(pod, replica)]
        for pod in failed:
            status = _with_failed_pod(job, status, role, is_replaced=_is_replaced(pod, replica), now=now)
        status = {**status, "replicaStatuses": {**status.get("replicaStatuses", {}), role: _counts(own)}}
    return Pass(status=_judged(job, status, now), create=tuple(create), delete=tuple(delete))


def _is_replaced(pod: Manifest, replica: Mapping[str, Any]) -> bool:
    return replica["restartPolicy"] != "ExitCode" or _exit_code(pod) >= _RETRYABLE


def _with_failed_pod(job: Manifest, status: Status, role: str, *, is_replaced: bool, now: datetime) -> Status:
    name = job["metadata"]["name"]
    if is_replaced:
        message = f"job {name} is restarting because {role} replica(s) failed."
        return with_condition(status, "Restarting", message, now=now)
    return with_condition(status, "Failed", f'job "{name}" is failing because "{role}" replica(s) failed.', now=now)


def _counts(pods: Sequence[Manifest]) -> dict[str, int]:
    words = {"Running": "active", "Succeeded": "succeeded", "Failed": "failed"}
    counted = [words.get(_phase(pod)) for pod in pods]
    return {word: counted.count(word) for word in words.values() if word in counted}


def _judged(job: Manifest, status: Status, now: datetime) -> Status:
    roles = job["spec"]["pytorchReplicaSpecs"]
    for role, replica in roles.items():
        count = status["replicaStatuses"][role]
        if role == "Master" or "Master" not in roles:
            status = _with_progress(job, status, role, count, now)
            if role == "Master" and has(status, "Succeeded"):
                return status
        if count.get("failed") and replica["restartPolicy"] == "Never":
            message = (
                f"PyTorchJob {job['metadata']['name']} is failed because {count['failed']} {role} replica(s) failed."
            )
            status = with_condition({"completionTime": instant(now), **status}, "Failed", message, now=now)
    return status


def _with_progress(job: Manifest, status: Status, role: str, count: Mapping[str, Any], now: datetime) -> Status:
    meta = job["metadata"]
    name = meta["name"] if role == "Master" else f"{meta.get('namespace', 'default')}/{meta['name']}"
    done = count.get("succeeded", 0) == job["spec"]["pytorchReplicaSpecs"][role]["replicas"]
    if role == "Worker" and job["spec"].get("elasticPolicy") is not None:
        done = done or count.get("succeeded", 0) > 0
    if count.get("active", 0) and (role == "Master" or not done):
        status = with_condition(status, "Running", f"PyTorchJob {name} is running.", now=now)
    if not done:
        return status
    words = "is successfully completed." if role == "Master" else "successfully completed."
    status = {"completionTime": instant(now), **status}
    return with_condition(status, "Succeeded", f"PyTorchJob {name} {words}", now=now)


def _exit_code(pod: Manifest) -> int:
    for container in pod["status"].get("containerStatuses", ()):
        terminated = container["state"].get("terminated")
        if container["name"] == CONTAINER and terminated:
            return int(terminated["exitCode"])
    return _NO_EXIT_CODE


def _role(pod: Manifest) -> str:
    return str(pod["metadata"]["labels"][ROLE_LABEL]).capitalize()


def _phase(pod: Manifest) -> str:
    return str(pod["status"]["phase"])


def _name(pod: Manifest) -> str:
    return str(pod["metadata"]["name"])
