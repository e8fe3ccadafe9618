"""Admit a job on this machine: check its fields, names, references and devices, and find replacements of its images.

A field that changes what runs is honoured or refused. A field that is not listed here is refused, so that none is
silently ignored. A field about where, or as which user, a job runs is announced once. A null, an empty list and an
empty mapping count as unset.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from ptjob_provider.core.errors import InvalidSpec, UnsupportedByBackend
from ptjob_provider.core.identity import TENSORBOARD_ANNOTATION
from ptjob_provider.core.in_pod import sync_code, unpack_code
from ptjob_provider.core.kinds.pod_template import count_gpus, is_gpu
from ptjob_provider.core.local import devices, launch
from ptjob_provider.core.local.config import NO_IMAGE, Setup
from ptjob_provider.core.local.image import ImageFacts, arguments, read_image
from ptjob_provider.core.local.launch import Stores
from ptjob_provider.core.local.operator import defaulted, instant
from ptjob_provider.core.local.store import check_label

if TYPE_CHECKING:
    from pathlib import Path

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.local.config import LocalConfig


Rule = str | Literal[False] | Mapping[str, Any] | Sequence[Any] | None
"""Rule of a field: a text says why it does not apply here, which a notice of the job repeats; False: refused; None:
honoured; else the rules of a mapping's fields, of which all others are refused, or of a list's items."""


def _honoured(names: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split())


def _announced(why: str, names: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), why)


_WHERE = "says where to run"
_WHO = "sets the user; here a job runs as the user who submits it"
_NETWORK = "is about a pod's network; here all replicas share this machine's"
_IMAGE = "is about pulling an image; nothing is pulled here"
_SHARED = "is so for all processes here"
_OVERWRITTEN = "is overwritten by the replica's restartPolicy, as on a cluster"
_READ_WHERE_NAMED = "is read where a variable or an argument names it; else the end of the log tells why it failed"
_NOT_ENFORCED = "is not enforced"
_SHOWN = "is shown by `ptjob tensorboard`, until Ctrl-C"

_FILES = {**_honoured("name secretName items optional"), **_announced(_WHO, "defaultMode")}
_VOLUME: Rule = {
    **_honoured("name"),
    "persistentVolumeClaim": _honoured("claimName readOnly"),
    "emptyDir": {**_honoured("medium"), **_announced(_NOT_ENFORCED, "sizeLimit")},
    **dict.fromkeys(("configMap", "secret"), _FILES),
}
_ENV: Rule = {
    **_honoured("name value"),
    "valueFrom": _honoured("secretKeyRef configMapKeyRef fieldRef"),
}
_CONTAINER: Rule = {
    **_honoured("name image command args workingDir ports terminationMessagePolicy"),
    "env": [_ENV],
    "envFrom": [_honoured("prefix secretRef configMapRef")],
    "volumeMounts": [_honoured("name mountPath subPath readOnly")],
    "resources": _honoured("limits requests"),
    **_announced(_IMAGE, "imagePullPolicy"),
    **_announced(_WHO, "securityContext"),
    **_announced(_NETWORK, "readinessProbe"),
    **_announced(_NOT_ENFORCED, "resizePolicy"),
    **_announced(_READ_WHERE_NAMED, "terminationMessagePath"),
}
_POD: Rule = {
    **_honoured("terminationGracePeriodSeconds"),
    "containers": [_CONTAINER],
    "initContainers": [_CONTAINER],
    "volumes": [_VOLUME],
    **_announced(_WHERE, "nodeSelector nodeName tolerations affinity topologySpreadConstraints schedulerName os"),
    **_announced(_WHERE, "priorityClassName priority preemptionPolicy runtimeClassName overhead"),
    **_announced(_WHO, "serviceAccountName serviceAccount automountServiceAccountToken securityContext hostUsers"),
    **_announced(_NETWORK, "hostNetwork hostname subdomain setHostnameAsFQDN dnsPolicy dnsConfig"),
    **_announced(_NETWORK, "enableServiceLinks readinessGates"),
    **_announced(_SHARED, "hostIPC hostPID shareProcessNamespace"),
    **_announced(_IMAGE, "imagePullSecrets"),
    **_announced(_OVERWRITTEN, "restartPolicy"),
}
_REPLICA: Rule = {**_honoured("replicas restartPolicy"), "template": {**_honoured("metadata"), "spec": _POD}}
_SPEC: Rule = {
    **_honoured("nprocPerNode"),
    "runPolicy": {
        **_honoured("cleanPodPolicy ttlSecondsAfterFinished activeDeadlineSeconds backoffLimit suspend managedBy"),
        **_announced(_WHERE, "schedulingPolicy"),
    },
    "elasticPolicy": {
        **_honoured("minReplicas maxReplicas rdzvBackend rdzvHost rdzvPort rdzvId rdzvConf standalone nProcPerNode"),
        **_honoured("maxRestarts"),
    },
    "pytorchReplicaSpecs": {"Master": _REPLICA, "Worker": _REPLICA},
}
_FIELD = re.compile(r"metadata\.(name|namespace|uid|(labels|annotations)\['[^']+'\])|status\.(podIP|hostIP)")
_CODE_CONTAINERS = (sync_code.CONTAINER, unpack_code.CONTAINER)
"""Containers that fetch the job's code; their settings for clusters are not announced."""

_SYNC = ("python3", "-I", sync_code.__file__)
"""Entrypoint that replaces that of every code-sync image; all of them take the same configuration."""


def admit(job: Manifest, config: LocalConfig) -> tuple[Setup, list[Manifest]]:
    """Return the supervisor's setup, and Events that announce the fields that do not apply on this machine.

    Raises:
        InvalidSpec: a name, a path or a reference is invalid, or a path leaves its volume.
        UnsupportedByBackend: a field would have to be ignored, or this machine offers too few devices.
    """
    full, claims = defaulted(job), config.claims_of(job["metadata"]["namespace"])
    notices = [*announced_fields(full), *_device_notices(full, config), *_unenforced(full)]
    images, image_notices = _images(full, config)
    stores = Stores(secrets=config.secrets, config_maps=config.config_maps)
    for path, pod in _pods(full):
        check_pod(path, pod, claims=claims)
        check_references(path, pod, stores)
    setup = Setup(
        claims=str(claims),
        devices=str(config.root.absolute() / "gpus"),
        gpus=config.gpus,
        restart_backoff=config.restart_backoff,
        environment=config.environment,
        python=config.interpreter,
        images=images,
        stores=stores,
    )
    for path, container in _containers(full):
        if not arguments(container, setup.image(container["image"])):
            image = container["image"]
            why = f"{config.title('local_images')} has no entry for the image {image!r}, so its entrypoint is unknown"
            raise UnsupportedByBackend.of(f"{path}.command", f"{why}; give a command or add the image there")
    return setup, [_event(job, number, text) for number, text in enumerate([*notices, *image_notices])]


def announced_fields(job: Mapping[str, Any]) -> list[str]:
    """Return one message for each field that does not apply on this machine, with all its paths in the job.

    Args:
        job: with the operator's defaults.

    Raises:
        UnsupportedByBackend: a field would have to be ignored; the error names its path.
    """
    manager = job["spec"].get("runPolicy", {}).get("managedBy")
    if manager not in (None, "kubeflow.org/training-operator"):
        raise UnsupportedByBackend.of("spec.runPolicy.managedBy", f"{manager!r} does not run jobs on this machine")
    paths: dict[tuple[str, str], list[str]] = {}
    for path, name, why in (*_marked(job["metadata"]), *_walk("spec", job["spec"], _SPEC)):
        paths.setdefault((name, why), []).append(path)
    return [
        f"{name} does not apply on this machine: it {why} ({', '.join(each)})" for (name, why), each in paths.items()
    ]


def _marked(meta: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    if TENSORBOARD_ANNOTATION in (meta.get("annotations") or {}):
        yield f"metadata.annotations[{TENSORBOARD_ANNOTATION}]", "tensorboard", _SHOWN
    for label in meta.get("labels") or {}:
        if label.startswith("kueue.x-k8s.io/"):
            yield f"metadata.labels[{label}]", label, _WHERE


def _walk(path: str, value: Any, rule: Rule) -> Iterator[tuple[str, str, str]]:
    """Yield path, name and reason of each announced field."""
    if not value and (value is False or not isinstance(value, (int, float))):
        return
    if rule is False:
        raise UnsupportedByBackend.of(path, "this field is not supported on this machine")
    if isinstance(rule, str):
        yield path, path.rpartition(".")[2], rule
    elif isinstance(rule, Mapping):
        for name, part in value.items():
            yield from _walk(f"{path}.{name}", part, rule.get(name, False))
    elif rule is not None:
        for number, item in enumerate(value):
            yield from () if item.get("name") in _CODE_CONTAINERS else _walk(f"{path}[{number}]", item, rule[0])


def _device_notices(job: Manifest, config: LocalConfig) -> Iterator[str]:
    option = config.title("local_gpus")
    for path, container in _containers(job):
        for name, count in devices.requested(container):
            if config.gpus == "ignore":
                instead = "on the CPU" if is_gpu(name) else "without"
                yield f"{path}: {name}: {count} is ignored ({option} = ignore); it runs {instead}"
                continue
            where = f"{path}.resources.limits[{name}]"
            if not is_gpu(name):
                hint = f"leave it out, or have it ignored with every wish for a device ({option} = ignore)"
                raise UnsupportedByBackend.of(where, f"this machine offers GPUs only; {hint}")
            if config.gpus == "refuse":
                hint = f"choose ignore (run on the CPU) or how many devices this machine offers ({option})"
                raise UnsupportedByBackend.of(where, f"devices are refused on this machine; {hint}")
    total = sum(each["replicas"] * count_gpus(each["template"]) for each in job["spec"]["pytorchReplicaSpecs"].values())
    if isinstance(config.gpus, int) and total > config.gpus:
        why = f"the job requests {total} devices in all, this machine offers {config.gpus} ({option})"
        raise UnsupportedByBackend.of("spec.pytorchReplicaSpecs", why)


def _unenforced(job: Manifest) -> Iterator[str]:
    containers = [(path, each) for path, each in _containers(job) if each["name"] not in _CODE_CONTAINERS]
    limits = ((path, (each.get("resources") or {}).get("limits") or ()) for path, each in containers)
    limited = [path for path, names in limits if {"cpu", "memory", "ephemeral-storage"} & {*names}]
    if limited:
        yield f"limits of cpu and memory are not enforced on this machine ({', '.join(limited)})"
    read_only = [mount for _, pod in _pods(job) for mount in launch.read_only_mounts(pod)]
    if read_only:
        yield f"readOnly mounts can be written on this machine ({', '.join(dict.fromkeys(read_only))})"


def _images(job: Manifest, config: LocalConfig) -> tuple[dict[str, ImageFacts], list[str]]:
    images: dict[str, ImageFacts] = {}
    notices = []
    sync_images = {each["image"] for _, each in _containers(job) if each["name"] == sync_code.CONTAINER}
    for name in dict.fromkeys(container["image"] for _, container in _containers(job)):
        replacement = config.replacement(name)
        if replacement is not None:
            python = replacement.python or config.interpreter
            images[name], unapplied = read_image(replacement.context, python=python, image=name)
            left_out = f"; not applied: {', '.join(unapplied)}" if unapplied else ""
            notices.append(f"image {name}: replaced by {replacement.context}; python is {python}{left_out}")
        elif name in sync_images:
            images[name] = ImageFacts(python=sys.executable, entrypoint=_SYNC, env={}, files={})
        elif name != NO_IMAGE:
            text = f"{config.title('local_images')} has no entry for it; its files and working directory are missing"
            notices.append(f"image {name}: {text}, python is {config.interpreter}")
    return images, notices


def check_pod(path: str, pod: Mapping[str, Any], *, claims: Path) -> None:
    """Check that names can be used for directories, that no sub-path leaves its volume, and that `fieldRef`s are known.

    Raises:
        InvalidSpec: a name or a path is invalid.
        UnsupportedByBackend: a `fieldRef` names a field that a pod on this machine does not have.
    """
    for volume in pod.get("volumes") or ():
        check_label(f"{path}.volumes[].name", volume["name"])
    volumes = launch.volume_directories(pod, claims=claims, pod=claims, memory=claims)
    for where, container in _containers_of(path, pod):
        check_label(f"{where}.name", container["name"])
        if "/" in launch.mounted_paths(container, volumes):
            raise InvalidSpec.of(f"{where}.volumeMounts", "/", "allowed: a directory below /")
        for number, entry in enumerate(container.get("env") or ()):
            field = ((entry.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath")
            if field and not _FIELD.fullmatch(field):
                known = "metadata.name, .namespace, .uid, .labels['…'], .annotations['…'], status.podIP, status.hostIP"
                why = f"{field!r} is not known here, only {known}"
                raise UnsupportedByBackend.of(f"{where}.env[{number}].valueFrom.fieldRef", why)


def check_references(path: str, pod: Mapping[str, Any], stores: Stores) -> None:
    """Check that the secrets and config maps to which a pod refers exist.

    Raises:
        InvalidSpec: one of them, or a key of it, does not exist.
    """
    for where, source in _sources(path, pod):
        if launch.reference(source)[0]:
            stores.values(source, where)


def _sources(path: str, pod: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield from ((f"{path}.volumes[{number}]", volume) for number, volume in enumerate(pod.get("volumes") or ()))
    for where, container in _containers_of(path, pod):
        for number, entry in enumerate(container.get("env") or ()):
            yield f"{where}.env[{number}].valueFrom", entry.get("valueFrom") or {}
        for number, source in enumerate(container.get("envFrom") or ()):
            yield f"{where}.envFrom[{number}]", source


def _pods(job: Manifest) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for role, replica in job["spec"]["pytorchReplicaSpecs"].items():
        yield f"spec.pytorchReplicaSpecs.{role}.template.spec", replica["template"]["spec"]


def _containers(job: Manifest) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for path, pod in _pods(job):
        yield from _containers_of(path, pod)


def _containers_of(path: str, pod: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the pod's containers with their paths, in starting order."""
    for kind in ("initContainers", "containers"):
        for number, container in enumerate(pod.get(kind) or ()):
            yield f"{path}.{kind}[{number}]", container


def _event(job: Manifest, number: int, text: str) -> Manifest:
    meta = {name: job["metadata"][name] for name in ("namespace", "name", "uid")}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": meta["namespace"], "name": f"{meta['name']}.{number}"},
        "involvedObject": {"apiVersion": job["apiVersion"], "kind": job["kind"], **meta},
        "type": "Normal",
        "reason": "NotApplied",
        "message": text,
        "lastTimestamp": instant(datetime.now(UTC)),
    }
