"""States of pods, and settings of helper pods: what all of them have, and what they inherit from a job's rank 0.

Pure. Decides whether a helper pod can start and what it may read, not what it runs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.identity import JobRef

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.identity import Manifest

HELPER = {"automountServiceAccountToken": False, "enableServiceLinks": False, "terminationGracePeriodSeconds": 1}
"""Fields of every helper pod."""

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
    """Return the metadata of an object that the job owns."""
    ref = JobRef.of(job)
    owner = {"apiVersion": job["apiVersion"], "kind": ref.kind, "name": ref.name, "uid": ref.uid}
    return {
        "name": name,
        "namespace": ref.namespace,
        "labels": dict(labels),
        **({"annotations": dict(annotations)} if annotations else {}),
        "ownerReferences": [{**owner, "blockOwnerDeletion": False}],
    }


def python_of(trainer: Mapping[str, Any]) -> str:
    """Return the interpreter that rank 0's command names, else `python3`."""
    return next((word for word in (trainer.get("command") or [])[:1] if _PYTHON.fullmatch(word)), "python3")


def security(pod: Mapping[str, Any], container: Mapping[str, Any]) -> tuple[Manifest, Manifest]:
    """Return the security contexts of pod and container: rank 0's user with minimal privileges.

    A non-root user passes PodSecurity `restricted`. Root keeps the runtime's default capabilities: without them it
    could not read what the training wrote as another user.
    """
    for_pod, for_container = picked(pod, _POD_USER), picked(container, _CONTAINER_USER)
    if "fsGroup" in for_pod:
        for_pod["fsGroupChangePolicy"] = "OnRootMismatch"  # any other leaves the files unchanged
    for_container |= {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}
    user = for_pod | for_container
    if user.get("runAsNonRoot") or user.get("runAsUser"):
        for_pod = {"seccompProfile": {"type": "RuntimeDefault"}} | for_pod
        for_container |= {"runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}}
    return for_pod, for_container


def placement(rank0: Mapping[str, Any], trainer: Mapping[str, Any], *, on_its_node: bool) -> Manifest:
    """Return the placement fields: rank 0's node if required, else any allowed for rank 0, its own preferred."""
    spec = rank0["spec"]
    affinity = picked((spec.get("affinity") or {}).get("nodeAffinity") or {}, (_REQUIRED,))
    fields = picked(spec, ("nodeSelector",))
    if spec.get("nodeName"):
        node = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [spec["nodeName"]]}]}
        wish = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": node}]}
        must = {_REQUIRED: {"nodeSelectorTerms": [node]}}
        affinity, fields = (must, {}) if on_its_node else (affinity | wish, fields)
    if affinity:
        fields["affinity"] = {"nodeAffinity": affinity}
    tolerations = _tolerations(spec.get("tolerations") or [], trainer)
    return fields | ({"tolerations": tolerations} if tolerations else {})


def platform(rank0: Mapping[str, Any]) -> Manifest:
    """Return the placement fields of a pod that can use any node whose system runs rank 0's image.

    The training's own node selection is ignored: a pod without a device that stays for days would occupy such a node.
    """
    spec = rank0["spec"]
    selected = picked(spec.get("nodeSelector") or {}, _PLATFORM)
    return {**({"nodeSelector": selected} if selected else {}), **picked(spec, ("tolerations",))}


def _tolerations(given: Sequence[Manifest], trainer: Mapping[str, Any]) -> list[Manifest]:
    """Add the tolerations that admission gives only to pods with devices.

    Clouds taint their GPU nodes with `nvidia.com/gpu`; a template need not tolerate it.
    """
    devices = [name for name in (trainer.get("resources") or {}).get("limits") or {} if "/" in name]
    ours = [{"key": name, "operator": "Exists", "effect": "NoSchedule"} for name in devices]
    return [*given, *(one for one in ours if one not in given)]


def picked(fields: Mapping[str, Any], names: Sequence[str]) -> Manifest:
    """Return the non-empty ones of these fields."""
    return {name: fields[name] for name in names if fields.get(name) is not None}
