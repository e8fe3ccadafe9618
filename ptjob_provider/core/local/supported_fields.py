"""Classify a job's fields as honoured, announced as not applying, or refused on this machine. Pure.

Fields about where, or as which user, something runs are announced once. Fields that change what runs are honoured or
refused; an unlisted field is refused, so that nothing is silently ignored. A null, an empty list and an empty mapping
count as unset.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ptjob_provider.core.errors import UnsupportedByBackend
from ptjob_provider.core.identity import TENSORBOARD_ANNOTATION

HONOURED = ""
_ROLE = re.compile(r"^(spec\.pytorchReplicaSpecs\.)\w+")
_WHERE = "says where to run"
_WHO = "sets the user; here a job runs as the user who submits it"
_NETWORK = "is about a pod's network; here all replicas share this machine's"
_IMAGE = "is about pulling an image; nothing is pulled here"
_LIMITS = "is not enforced"
_SHOWN = "is shown by `ptjob tensorboard`, as long as somebody looks"


@dataclass(frozen=True)
class Announced:
    """The field does not apply here; announced once."""

    why: str


@dataclass(frozen=True)
class Refused:
    """The field would change what runs, and is not supported here."""

    why: str


Rule = str | Announced | Refused
"""HONOURED, or one of the two."""

_RUN_POLICY: Mapping[str, Rule] = {
    **dict.fromkeys(
        ("cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit", "suspend"), HONOURED
    ),
    "schedulingPolicy": Announced(_WHERE),
    "managedBy": HONOURED,
}
_ELASTIC: Mapping[str, Rule] = {
    **dict.fromkeys(
        ("minReplicas", "maxReplicas", "rdzvBackend", "rdzvHost", "rdzvPort", "rdzvId", "rdzvConf"), HONOURED
    ),
    **dict.fromkeys(("standalone", "nProcPerNode", "maxRestarts"), HONOURED),
    "metrics": Refused("the number of workers cannot be scaled by metrics here"),
}
_SPEC: Mapping[str, Rule] = dict.fromkeys(
    ("pytorchReplicaSpecs", "runPolicy", "elasticPolicy", "nprocPerNode"), HONOURED
)
_REPLICA: Mapping[str, Rule] = dict.fromkeys(("replicas", "restartPolicy", "template"), HONOURED)
_TEMPLATE: Mapping[str, Rule] = dict.fromkeys(("metadata", "spec"), HONOURED)
_POD: Mapping[str, Rule] = {
    **dict.fromkeys(("containers", "initContainers", "volumes", "terminationGracePeriodSeconds"), HONOURED),
    **dict.fromkeys(
        ("nodeSelector", "nodeName", "tolerations", "affinity", "topologySpreadConstraints"), Announced(_WHERE)
    ),
    **dict.fromkeys(("priorityClassName", "priority", "preemptionPolicy", "schedulerName"), Announced(_WHERE)),
    **dict.fromkeys(("runtimeClassName", "overhead", "os"), Announced(_WHERE)),
    **dict.fromkeys(("serviceAccountName", "serviceAccount", "automountServiceAccountToken"), Announced(_WHO)),
    **dict.fromkeys(("securityContext", "hostUsers"), Announced(_WHO)),
    **dict.fromkeys(
        ("hostNetwork", "hostname", "subdomain", "setHostnameAsFQDN", "dnsPolicy", "dnsConfig"), Announced(_NETWORK)
    ),
    **dict.fromkeys(("enableServiceLinks", "readinessGates"), Announced(_NETWORK)),
    **dict.fromkeys(("hostIPC", "hostPID", "shareProcessNamespace"), Announced("is so for all processes here")),
    "imagePullSecrets": Announced(_IMAGE),
    "restartPolicy": Announced("is overwritten by the replica's restartPolicy, as on a cluster"),
    "hostAliases": Refused("names cannot be given to addresses here"),
    "activeDeadlineSeconds": Refused("a pod's own deadline is not kept here; set spec.runPolicy.activeDeadlineSeconds"),
    "ephemeralContainers": Refused("containers cannot be added here"),
    "resourceClaims": Refused("devices can be claimed here only as gpu limits"),
    "schedulingGates": Refused("no controller would remove the gate here; use spec.runPolicy.suspend"),
}
_CONTAINER: Mapping[str, Rule] = {
    **dict.fromkeys(
        ("name", "image", "command", "args", "workingDir", "env", "envFrom", "volumeMounts", "resources"), HONOURED
    ),
    **dict.fromkeys(("ports", "terminationMessagePolicy"), HONOURED),
    "imagePullPolicy": Announced(_IMAGE),
    "securityContext": Announced(_WHO),
    "readinessProbe": Announced(_NETWORK),
    "resizePolicy": Announced(_LIMITS),
    "terminationMessagePath": Announced(
        "is read where a variable or an argument names it; else the end of the log tells why it failed"
    ),
    **dict.fromkeys(
        ("livenessProbe", "startupProbe"), Refused("nothing probes a container here, so it would not be restarted")
    ),
    "lifecycle": Refused("no hook is run here"),
    "volumeDevices": Refused("there are no block devices here"),
    "restartPolicy": Refused("an init container that goes on running is not supported here"),
    "restartPolicyRules": Refused("containers restart by the replica's restartPolicy here"),
    **dict.fromkeys(("stdin", "stdinOnce", "tty"), Refused("no terminal is attached here")),
}
_MOUNT: Mapping[str, Rule] = {
    **dict.fromkeys(("name", "mountPath", "subPath", "readOnly"), HONOURED),
    "mountPropagation": Refused("mounts are not passed on here"),
    "recursiveReadOnly": Refused("only readOnly is supported here"),
    "subPathExpr": Refused("write the path out as subPath"),
}
_ENV: Mapping[str, Rule] = dict.fromkeys(("name", "value", "valueFrom"), HONOURED)
_ENV_FROM: Mapping[str, Rule] = dict.fromkeys(("prefix", "secretRef", "configMapRef"), HONOURED)
_SOURCE: Mapping[str, Rule] = {
    **dict.fromkeys(("secretKeyRef", "configMapKeyRef", "fieldRef"), HONOURED),
    "resourceFieldRef": Refused("limits are not enforced here, so there is no such value"),
}
_VOLUME: Mapping[str, Rule] = {
    **dict.fromkeys(("name", "persistentVolumeClaim", "emptyDir", "configMap", "secret"), HONOURED),
    "hostPath": Refused("a node's disk is not this machine's; use a persistentVolumeClaim"),
}
_CLAIM: Mapping[str, Rule] = dict.fromkeys(("claimName", "readOnly"), HONOURED)
_EMPTY_DIR: Mapping[str, Rule] = {
    "medium": HONOURED,
    "sizeLimit": Announced(_LIMITS),
}
_FILES: Mapping[str, Rule] = {
    **dict.fromkeys(("name", "secretName", "items", "optional"), HONOURED),
    "defaultMode": Announced(_WHO),
}
_RESOURCES: Mapping[str, Rule] = {
    **dict.fromkeys(("limits", "requests"), HONOURED),
    "claims": Refused("devices can be claimed here only as gpu limits"),
}
_INNER: Mapping[str, Mapping[str, Mapping[str, Rule]]] = {
    "volumes": {"persistentVolumeClaim": _CLAIM, "emptyDir": _EMPTY_DIR, "configMap": _FILES, "secret": _FILES},
    "env": {"valueFrom": _SOURCE},
}


def announced(job: Mapping[str, Any]) -> list[str]:
    """Return the fields that do not apply here, each once for all roles.

    Args:
        job: with defaults.

    Raises:
        UnsupportedByBackend: a field would have to be ignored; the text names it by its path.
    """
    where: dict[tuple[str, str], list[str]] = {}
    for path, name, why in (*_marked(job["metadata"]), *_walk(job["spec"])):
        where.setdefault((name, why), []).append(path)
    return [
        f"{name} does not apply on this machine: it {why} ({', '.join(_joined(paths))})"
        for (name, why), paths in where.items()
    ]


def _joined(paths: Sequence[str]) -> list[str]:
    """Merge the paths of both roles into one with a star for the role."""
    starred = [_ROLE.sub(r"\1*", path) for path in paths]
    return list(dict.fromkeys(s if starred.count(s) > 1 else path for s, path in zip(starred, paths, strict=True)))


Finding = tuple[str, str, str]
"""Path, name and reason of an announced field."""


def _marked(meta: Mapping[str, Any]) -> Iterator[Finding]:
    if TENSORBOARD_ANNOTATION in (meta.get("annotations") or {}):
        yield f"metadata.annotations[{TENSORBOARD_ANNOTATION}]", "tensorboard", _SHOWN
    for label in meta.get("labels") or {}:
        if label.startswith("kueue.x-k8s.io/"):
            yield f"metadata.labels[{label}]", label, _WHERE


def _walk(spec: Mapping[str, Any]) -> Iterator[Finding]:
    yield from _check("spec", spec, _SPEC)
    yield from _check("spec.runPolicy", spec.get("runPolicy") or {}, _RUN_POLICY)
    yield from _check("spec.elasticPolicy", spec.get("elasticPolicy") or {}, _ELASTIC)
    manager = (spec.get("runPolicy") or {}).get("managedBy")
    if manager not in (None, "kubeflow.org/training-operator"):
        raise UnsupportedByBackend.of("spec.runPolicy.managedBy", f"{manager!r} does not run jobs on this machine")
    for role, replica in spec["pytorchReplicaSpecs"].items():
        path = f"spec.pytorchReplicaSpecs.{role}"
        yield from _check(path, replica, _REPLICA)
        yield from _check(f"{path}.template", replica["template"], _TEMPLATE)
        yield from _walk_pod(f"{path}.template.spec", replica["template"]["spec"])


def _walk_pod(path: str, pod: Mapping[str, Any]) -> Iterator[Finding]:
    yield from _check(path, pod, _POD)
    yield from _walk_list(f"{path}.volumes", pod.get("volumes"), _VOLUME, _INNER["volumes"])
    for kind in ("initContainers", "containers"):
        for number, container in enumerate(pod.get(kind) or ()):
            yield from _walk_container(f"{path}.{kind}[{number}]", container)


def _walk_container(path: str, container: Mapping[str, Any]) -> Iterator[Finding]:
    yield from _check(path, container, _CONTAINER)
    yield from _check(f"{path}.resources", container.get("resources") or {}, _RESOURCES)
    for name, table in (("volumeMounts", _MOUNT), ("env", _ENV), ("envFrom", _ENV_FROM)):
        yield from _walk_list(f"{path}.{name}", container.get(name), table, _INNER.get(name, {}))


def _walk_list(
    path: str,
    items: Sequence[Mapping[str, Any]] | None,
    table: Mapping[str, Rule],
    inner: Mapping[str, Mapping[str, Rule]],
) -> Iterator[Finding]:
    for number, item in enumerate(items or ()):
        yield from _check(f"{path}[{number}]", item, table)
        for name, inner_table in inner.items():
            yield from _check(f"{path}[{number}].{name}", item.get(name) or {}, inner_table)


def _check(path: str, fields: Mapping[str, Any], table: Mapping[str, Rule]) -> Iterator[Finding]:
    for name, value in fields.items():
        rule = table.get(name, Refused("this field is not known on this machine"))
        if isinstance(rule, str) or _asks_for_nothing(value):
            continue
        if isinstance(rule, Refused):
            raise UnsupportedByBackend.of(f"{path}.{name}", rule.why)
        yield f"{path}.{name}", name, rule.why


def _asks_for_nothing(value: object) -> bool:
    return value is None or value is False or (isinstance(value, (str, Mapping, Sequence)) and not value)
