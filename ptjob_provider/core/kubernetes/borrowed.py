"""What the pods that we add to a job take from its rank 0: as whom they run, and where.

Pure. It decides whether such a pod can be started and what it may read, and nothing of what it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.identity import Manifest

NO_ISTIO = {"sidecar.istio.io/inject": "false"}
_PLATFORM = ("kubernetes.io/arch", "kubernetes.io/os")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_POD_USER = (
    *("runAsUser", "runAsGroup", "runAsNonRoot", "fsGroup", "supplementalGroups", "supplementalGroupsPolicy"),
    *("seLinuxOptions", "seccompProfile", "appArmorProfile"),
)
_CONTAINER_USER = ("runAsUser", "runAsGroup", "runAsNonRoot", "seLinuxOptions", "seccompProfile", "appArmorProfile")


def security(pod: Mapping[str, Any], container: Mapping[str, Any]) -> tuple[Manifest, Manifest]:
    """Return the security contexts of pod and container: rank 0's user, and as little else as that user needs.

    A user that is not root passes PodSecurity `restricted`. A root's capabilities stay those of the runtime: without
    them it could not read what the training wrote as another user.
    """
    for_pod, for_container = picked(pod, _POD_USER), picked(container, _CONTAINER_USER)
    if "fsGroup" in for_pod:
        for_pod["fsGroupChangePolicy"] = "OnRootMismatch"  # no other would leave the files as they are
    for_container |= {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}
    user = for_pod | for_container
    if user.get("runAsNonRoot") or user.get("runAsUser"):
        for_pod = {"seccompProfile": {"type": "RuntimeDefault"}} | for_pod
        for_container |= {"runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}}
    return for_pod, for_container


def placement(rank0: Mapping[str, Any], trainer: Mapping[str, Any], *, on_its_node: bool) -> Manifest:
    """Return what decides the node: rank 0's own if it must be, else any that rank 0 could have had, its own first."""
    spec = rank0["spec"]
    affinity = picked((spec.get("affinity") or {}).get("nodeAffinity") or {}, (_REQUIRED,))
    found = picked(spec, ("nodeSelector",))
    if spec.get("nodeName"):
        node = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [spec["nodeName"]]}]}
        wish = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": node}]}
        must = {_REQUIRED: {"nodeSelectorTerms": [node]}}
        affinity, found = (must, {}) if on_its_node else (affinity | wish, found)
    if affinity:
        found["affinity"] = {"nodeAffinity": affinity}
    tolerations = _tolerations(spec.get("tolerations") or [], trainer)
    return found | ({"tolerations": tolerations} if tolerations else {})


def platform(rank0: Mapping[str, Any]) -> Manifest:
    """Return what decides the node of a pod that any node can have whose system runs rank 0's image.

    Which nodes a training wants is not asked: a pod that needs no device and stays for days would keep one of them.
    """
    spec = rank0["spec"]
    selected = picked(spec.get("nodeSelector") or {}, _PLATFORM)
    return {**({"nodeSelector": selected} if selected else {}), **picked(spec, ("tolerations",))}


def _tolerations(given: Sequence[Manifest], trainer: Mapping[str, Any]) -> list[Manifest]:
    """Add what admission gives to pods that ask for devices, and not to one that asks for none.

    Clouds keep their GPU nodes free by a taint `nvidia.com/gpu`; a template need not tolerate it.
    """
    devices = [name for name in (trainer.get("resources") or {}).get("limits") or {} if "/" in name]
    ours = [{"key": name, "operator": "Exists", "effect": "NoSchedule"} for name in devices]
    return [*given, *(one for one in ours if one not in given)]


def picked(fields: Mapping[str, Any], names: Sequence[str]) -> Manifest:
    """Return those of the fields that say something."""
    return {name: fields[name] for name in names if fields.get(name) is not None}
