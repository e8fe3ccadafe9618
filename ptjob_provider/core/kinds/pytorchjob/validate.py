"""Reject a PyTorchJob that has an obvious mistake, or that the operator would accept and let hang.

The API server and the operator's webhook refuse the rest when the job is created, before anything runs: repeated items
of a list, quantities and ports outside of a container's resources, finalizers and owner references.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ptjob_provider.core.errors import InvalidSpec, one_of
from ptjob_provider.core.identity import check_name
from ptjob_provider.core.kinds.validate import check_labels, check_pod_shape, items, optional, part
from ptjob_provider.core.spec.parsers import MAX_PODS, check_known
from ptjob_provider.core.spec.pods import check_within, quantity

KIND = "PyTorchJob"
API_VERSION = "kubeflow.org/v1"
PLURAL = "pytorchjobs"
OPERATOR = "the training-operator"

CONTAINER = "pytorch"
"""Name of the training container; the operator accepts no other."""

ROLES = ("Master", "Worker")
ROLES_PATH = "spec.pytorchReplicaSpecs"

_RESTART_POLICIES = ("Never", "OnFailure", "ExitCode", "Always")
_CLEAN_POD_POLICIES = ("Running", "All", "None")
_RDZV_BACKENDS = ("c10d", "etcd", "etcd-v2")
_MANAGERS = ("kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue")
_NPROC = re.compile(r"auto|cpu|gpu|[1-9][0-9]*")
_LONGEST_SERVICE = 63


def validate(manifest: Mapping[str, Any]) -> None:
    """Check that the operator would accept and run the job.

    Beyond the webhook's rules: words that the CRD has no enum for, names whose services could not be created, and
    labels that no pod can have.

    Raises:
        InvalidSpec: the text names the field by its path.
    """
    check_shape(manifest)
    check_labels("metadata", manifest["metadata"])
    spec = manifest["spec"]
    roles = spec["pytorchReplicaSpecs"]
    for role, replica in roles.items():
        _check_replicas(role, replica)
        _check_word(f"{ROLES_PATH}.{role}.restartPolicy", replica.get("restartPolicy"), _RESTART_POLICIES)
        check_labels(f"{ROLES_PATH}.{role}.template.metadata", replica["template"].get("metadata") or {})
        _check_pod(f"{ROLES_PATH}.{role}.template.spec", replica["template"]["spec"])
    _check_policies(spec, roles)
    _check_length(manifest["metadata"].get("name"), roles)


def check_shape(manifest: Mapping[str, Any]) -> None:
    """Check the types of all parts that are read here; null counts as absent.

    Raises:
        InvalidSpec: the text names the part by its path.
    """
    _check_meta("metadata", part(manifest, "metadata", "metadata"))
    spec = part(manifest, "spec", "spec")
    for name in ("runPolicy", "elasticPolicy"):
        optional(spec, name, f"spec.{name}", Mapping)
    optional(spec.get("runPolicy") or {}, "schedulingPolicy", "spec.runPolicy.schedulingPolicy", Mapping)
    for role in part(spec, "pytorchReplicaSpecs", ROLES_PATH):
        check_known(f"{ROLES_PATH}.{role}", role, ROLES)
        replica = part(spec["pytorchReplicaSpecs"], role, f"{ROLES_PATH}.{role}")
        optional(replica, "replicas", f"{ROLES_PATH}.{role}.replicas", int)
        template = part(replica, "template", f"{ROLES_PATH}.{role}.template")
        optional(template, "metadata", f"{ROLES_PATH}.{role}.template.metadata", Mapping)
        _check_meta(f"{ROLES_PATH}.{role}.template.metadata", template.get("metadata") or {})
        path = f"{ROLES_PATH}.{role}.template.spec"
        check_pod_shape(path, part(template, "spec", path))


def _check_meta(path: str, meta: Mapping[str, Any]) -> None:
    for name in ("labels", "annotations"):
        optional(meta, name, f"{path}.{name}", Mapping)
    for name in ("name", "generateName", "namespace"):
        optional(meta, name, f"{path}.{name}", str)


def _check_replicas(role: str, replica: Mapping[str, Any]) -> None:
    count, path = replica.get("replicas"), f"{ROLES_PATH}.{role}.replicas"
    if role == "Master" and (count != 1 or isinstance(count, bool)):
        raise InvalidSpec.of(path, count, "must be written, and be 1 (the webhook's rule)")
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MAX_PODS):
        raise InvalidSpec.of(path, count, f"a whole number, at least 1, at most {MAX_PODS}")


def _check_pod(path: str, pod: Mapping[str, Any]) -> None:
    volumes = [volume["name"] for volume in pod.get("volumes") or []]
    for where, container in [*items(pod, "containers", path), *items(pod, "initContainers", path)]:
        if not container.get("image") or not isinstance(container["image"], str):
            raise InvalidSpec.of(f"{where}.image", container.get("image"), "required")
        _check_mounts(where, container, volumes)
        _check_resources(f"{where}.resources", container.get("resources") or {})
    if CONTAINER not in [container.get("name") for container in pod["containers"]]:
        raise InvalidSpec.of(f"{path}.containers", "no such name", f"one of them must be named {CONTAINER}")


def _check_resources(path: str, resources: Mapping[str, Any]) -> None:
    asked = {
        part: {name: _quantity(f"{path}.{part}.{name}", size) for name, size in (resources.get(part) or {}).items()}
        for part in ("requests", "limits")
    }
    check_within(path, asked["requests"], asked["limits"])


def _quantity(path: str, size: Any) -> str:
    if isinstance(size, float):
        raise InvalidSpec.of(path, size, f'a text or a whole number: write it as "{size}"')
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
        raise InvalidSpec.of("spec.nprocPerNode", nproc, 'a text: "auto", "cpu", "gpu" or a number such as "2", quoted')
    if elastic is None:
        return
    if "Worker" not in roles:
        raise InvalidSpec.of(f"{ROLES_PATH}.Worker", None, "required by spec.elasticPolicy")
    if nproc is not None and elastic.get("nProcPerNode") is not None:
        raise InvalidSpec.of("spec.elasticPolicy.nProcPerNode", elastic["nProcPerNode"], "not beside spec.nprocPerNode")
    _check_word("spec.elasticPolicy.rdzvBackend", elastic.get("rdzvBackend"), _RDZV_BACKENDS)


def _check_length(name: str | None, roles: Mapping[str, Any]) -> None:
    """Reject a name with which the last replica's service would be too long: such a job hangs for ever (#1101)."""
    if name is None:
        return
    suffixes = [f"-{role.lower()}-{(replica.get('replicas') or 1) - 1}" for role, replica in roles.items()]
    check_name(name, field="metadata.name", max_length=_LONGEST_SERVICE - max(map(len, suffixes)))


def _check_word(path: str, value: object, allowed: tuple[str, ...]) -> None:
    if value is not None and value not in allowed:
        raise InvalidSpec.of(path, value, one_of(allowed))
