"""Return states of pods, and the fields of helper pods: those that all have, and those inherited from rank 0. Pure.

A helper pod inspects outputs, runs TensorBoard or copies files. The fields here decide whether it can start and what
it may read, not what it runs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.identity import Manifest

HELPER = {"automountServiceAccountToken": False, "enableServiceLinks": False, "terminationGracePeriodSeconds": 1}
"""Fields that every helper pod has."""

_PYTHON = re.compile(r"(/.*/)?python[0-9.]*")
_PLATFORM = ("kubernetes.io/arch", "kubernetes.io/os")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_POD_USER = (
    *("runAsUser", "runAsGroup", "runAsNonRoot", "fsGroup", "supplementalGroups", "supplementalGroupsPolicy"),
    *("seLinuxOptions", "seccompProfile", "appArmorProfile"),
)
_CONTAINER_USER = ("runAsUser", "runAsGroup", "runAsNonRoot", "seLinuxOptions", "seccompProfile", "appArmorProfile")


def has_ended(pod: Mapping[str, Any]) -> bool:
    """Return whether the pod's phase is final."""
    return pod["status"].get("phase") in {"Succeeded", "Failed"}


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Return whether the pod is ready and not being deleted."""
    conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions") or ()}
    return conditions.get("Ready") == "True" and not pod["metadata"].get("deletionTimestamp")


def metadata(
    job: Manifest, name: str, labels: Mapping[str, str], annotations: Mapping[str, str] | None = None
) -> Manifest:
    """Return the metadata of an object that the job owns, if it exists."""
    meta = job["metadata"]
    owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": meta["name"], "uid": meta.get("uid")}
    return {
        "name": name,
        "namespace": meta["namespace"],
        "labels": dict(labels),
        **({"annotations": dict(annotations)} if annotations else {}),
        "ownerReferences": [{**owner, "blockOwnerDeletion": False}] if owner["uid"] else [],
    }


def python_of(trainer: Mapping[str, Any]) -> str:
    """Return the Python interpreter in rank 0's command, else `python3`."""
    return next((word for word in (trainer.get("command") or [])[:1] if _PYTHON.fullmatch(word)), "python3")


def inherited(rank0: Mapping[str, Any], trainer: Mapping[str, Any]) -> tuple[Manifest, Manifest]:
    """Return the fields of the helper pod and of its container that decide what it may pull and read: those of rank 0.

    It has rank 0's user with minimal privileges. With a non-root user, the pod passes the PodSecurity level
    `restricted`. Root keeps the container runtime's default capabilities, because without them it could not read files
    that the training wrote as another user.

    Args:
        rank0: rank 0's pod, or its template.
        trainer: the training container.
    """
    spec = rank0["spec"]
    for_pod = picked(spec.get("securityContext") or {}, _POD_USER)
    for_container = picked(trainer.get("securityContext") or {}, _CONTAINER_USER)
    if "fsGroup" in for_pod:
        for_pod["fsGroupChangePolicy"] = "OnRootMismatch"  # the default changes the files of the whole volume
    for_container |= {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}
    user = for_pod | for_container
    if user.get("runAsNonRoot") or user.get("runAsUser"):
        for_pod = {"seccompProfile": {"type": "RuntimeDefault"}} | for_pod
        for_container |= {"runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}}
    shared = picked(spec, ("imagePullSecrets", "serviceAccountName"))
    return {**shared, "securityContext": for_pod}, {"securityContext": for_container}


def placement(rank0: Mapping[str, Any], trainer: Mapping[str, Any], *, on_its_node: bool) -> Manifest:
    """Return the fields that select the helper pod's node.

    Args:
        rank0: rank 0's pod, or its template.
        trainer: the training container.
        on_its_node: require rank 0's node, if known; else prefer it among the nodes that are allowed for rank 0.
    """
    spec = rank0["spec"]
    affinity = picked((spec.get("affinity") or {}).get("nodeAffinity") or {}, (_REQUIRED,))
    fields = picked(spec, ("nodeSelector",))
    if spec.get("nodeName"):
        node = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [spec["nodeName"]]}]}
        preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": node}]}
        required = {_REQUIRED: {"nodeSelectorTerms": [node]}}
        affinity, fields = (required, {}) if on_its_node else (affinity | preferred, fields)
    if affinity:
        fields["affinity"] = {"nodeAffinity": affinity}
    tolerations = _tolerations(spec.get("tolerations") or [], trainer)
    return fields | ({"tolerations": tolerations} if tolerations else {})


def platform(rank0: Mapping[str, Any]) -> Manifest:
    """Return the fields that select a node for a long-lived helper pod: any node that can run rank 0's image.

    Ignores rank 0's other node selection, because a pod without a GPU should not occupy a GPU node for days.
    """
    spec = rank0["spec"]
    selected = picked(spec.get("nodeSelector") or {}, _PLATFORM)
    return {**({"nodeSelector": selected} if selected else {}), **picked(spec, ("tolerations",))}


def _tolerations(tolerations: Sequence[Manifest], trainer: Mapping[str, Any]) -> list[Manifest]:
    """Return the tolerations together with those that an admission plugin adds to pods that request devices.

    Clouds taint their GPU nodes with `nvidia.com/gpu`. The helper pod requests no device, so that the plugin does not
    add the toleration, and the job's template need not have it.
    """
    devices = [name for name in (trainer.get("resources") or {}).get("limits") or {} if "/" in name]
    for_devices = [{"key": name, "operator": "Exists", "effect": "NoSchedule"} for name in devices]
    return [*tolerations, *(each for each in for_devices if each not in tolerations)]


def picked(fields: Mapping[str, Any], names: Sequence[str]) -> Manifest:
    """Return those of the named fields that are set."""
    return {name: fields[name] for name in names if fields.get(name) is not None}
