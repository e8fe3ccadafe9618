"""Admit a job on this machine: fields that are honoured, announced or refused, and the names it refers to."""

from __future__ import annotations

import re
import sys
import zlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec, UnsupportedByBackend
from ptjob_provider.core.in_pod import sync_code, unpack_code
from ptjob_provider.core.local import devices, supported_fields, volumes
from ptjob_provider.core.local.config import Setup
from ptjob_provider.core.local.image import ImageFacts, arguments
from ptjob_provider.core.local.launch import Stores
from ptjob_provider.core.local.operator import defaulted, instant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.local.config import LocalConfig
    from ptjob_provider.core.local.volumes import VolumePlaces

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_FIELD = re.compile(r"metadata\.(name|namespace|uid|(labels|annotations)\['[^']+'\])|status\.(podIP|hostIP)")
_REFERENCES = ("secretKeyRef", "secretRef", "secret", "configMapKeyRef", "configMapRef", "configMap")


def check_pod(path: str, pod: Mapping[str, Any], *, claims: Path) -> None:
    """Check that the pod's names can be directories here, its claims and sub-paths stay inside, its fields are known.

    Raises:
        InvalidSpec: a name or a path is invalid.
        UnsupportedByBackend: the pod refers to one of its fields that does not exist here.
    """
    places = volumes.VolumePlaces(claims=claims, pod=claims)
    for volume in pod.get("volumes") or ():
        _check_name(f"{path}.volumes[].name", volume["name"])
        volumes.volume_directory(volume, places)
    for where, container in containers(path, pod):
        _check_name(f"{where}.name", container["name"])
        _check_mounts(where, pod, container, places)
        for number, entry in enumerate(container.get("env") or ()):
            _check_field(f"{where}.env[{number}]", entry)


def containers(path: str, pod: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the pod's containers with their paths, in starting order."""
    for kind in ("initContainers", "containers"):
        for number, container in enumerate(pod.get(kind) or ()):
            yield f"{path}.{kind}[{number}]", container


def referenced(path: str, pod: Mapping[str, Any], stores: Stores) -> Stores:
    """Return only the values that the pod refers to.

    Raises:
        InvalidSpec: a reference does not exist.
    """
    found = Stores(secrets={}, config_maps={})
    for where, source in _sources(path, pod):
        found = merged(found, stores.only(source, where))
    return found


def merged(left: Stores, right: Stores) -> Stores:
    """Return the union of both."""
    return Stores(
        secrets=_union(left.secrets, right.secrets),
        config_maps=_union(left.config_maps, right.config_maps),
    )


def _sources(path: str, pod: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    places = [(f"{path}.volumes[{number}]", volume) for number, volume in enumerate(pod.get("volumes") or ())]
    for where, container in containers(path, pod):
        env, env_from = container.get("env") or (), container.get("envFrom") or ()
        places += [
            (f"{where}.env[{number}].valueFrom", entry.get("valueFrom") or {}) for number, entry in enumerate(env)
        ]
        places += [(f"{where}.envFrom[{number}]", source) for number, source in enumerate(env_from)]
    yield from ((where, source) for where, source in places if any(source.get(kind) for kind in _REFERENCES))


def _check_mounts(where: str, pod: Mapping[str, Any], container: Mapping[str, Any], places: VolumePlaces) -> None:
    for binding in volumes.bindings(pod, container, places):
        if binding.container_path == "/":
            raise InvalidSpec.of(f"{where}.volumeMounts", "/", "allowed: a directory below /")


def _check_field(where: str, entry: Mapping[str, Any]) -> None:
    ref = (entry.get("valueFrom") or {}).get("fieldRef")
    if ref and not _FIELD.fullmatch(ref.get("fieldPath", "")):
        known = "metadata.name, .namespace, .uid, .labels['…'], .annotations['…'], status.podIP and status.hostIP"
        raise UnsupportedByBackend.of(
            f"{where}.valueFrom.fieldRef", f"{ref.get('fieldPath')!r} is not known here, only {known}"
        )


def _check_name(where: str, name: str) -> None:
    if not _LABEL.fullmatch(name):
        raise InvalidSpec.of(
            where, name, "allowed: lower-case letters, digits and '-', at most 63 characters (DNS-1123)"
        )


def _union(left: Mapping[str, Mapping[str, str]], right: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    return {name: {**left.get(name, {}), **right.get(name, {})} for name in {**left, **right}}


_OURS = (sync_code.CONTAINER, unpack_code.CONTAINER)
_FOR_PODS = ("imagePullPolicy", "securityContext")
_SYNC = ("python3", "-I", sync_code.__file__)
"""Replacement of every sync image: all take the same configuration."""


def plan(job: Manifest, config: LocalConfig) -> tuple[Setup, list[Manifest]]:
    """Return the supervisor's setup, and the announcements, as Events about the job.

    Raises:
        InvalidSpec: a reference does not exist, or a path leaves its volume.
        UnsupportedByBackend: a field would have to be ignored, or a resource is insufficient.
    """
    full = defaulted(job)
    notices = [*supported_fields.announced(_without_ours(full)), *_device_notices(full, config)]
    images, image_notices = _images(full, config)
    setup = Setup(
        claims=str(config.claims_of(job["metadata"]["namespace"])),
        devices=str(config.root.absolute() / "gpus"),
        gpus=config.gpus,
        restart_backoff=config.restart_backoff,
        environment=config.environment,
        python=config.interpreter,
        images=images,
        stores=_referenced(full, config),
    )
    for path, container in _containers(full):
        if not arguments(container, setup.image(container["image"])):
            why = (
                f"[ptjob] local_images has no entry for the image {container['image']!r}, so its entrypoint is unknown"
            )
            raise UnsupportedByBackend.of(
                f"{path}.command", f"{why}; give a command or a stand-in ([ptjob] local_images)"
            )
    return setup, [_event(job, text) for text in [*notices, *image_notices]]


def _containers(job: Manifest) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for path, pod in _pods(job):
        yield from containers(path, pod)


def _pods(job: Manifest) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for role, replica in job["spec"]["pytorchReplicaSpecs"].items():
        yield f"spec.pytorchReplicaSpecs.{role}.template.spec", replica["template"]["spec"]


def _without_ours(job: Manifest) -> Manifest:
    """Return the job without our own settings of the containers that bring the code to pods of clusters."""
    roles = job["spec"]["pytorchReplicaSpecs"]
    return {**job, "spec": {**job["spec"], "pytorchReplicaSpecs": {role: _quiet(each) for role, each in roles.items()}}}


def _quiet(replica: Manifest) -> Manifest:
    pod = replica["template"]["spec"]
    if "initContainers" not in pod:
        return replica
    inits = [
        {name: part for name, part in each.items() if each["name"] not in _OURS or name not in _FOR_PODS}
        for each in pod["initContainers"] or ()
    ]
    return {**replica, "template": {**replica["template"], "spec": {**pod, "initContainers": inits}}}


def _device_notices(job: Manifest, config: LocalConfig) -> Iterator[str]:
    total = 0
    for path, container in _containers(job):
        wanted = dict(devices.extended(container))
        _check_devices(f"{path}.resources.limits", wanted, config)
        if wanted and config.gpus == "ignore":
            listed = ", ".join(f"{name}: {count}" for name, count in wanted.items())
            instead = "on the CPU" if any(devices.is_gpu(name) for name in wanted) else "without"
            yield f"{path}: {listed} is ignored ([ptjob] local_gpus = ignore); it runs {instead}"
    for role, replica in job["spec"]["pytorchReplicaSpecs"].items():
        total += replica["replicas"] * devices.devices_of(replica["template"]["spec"])
        _check_total(role, total, config)
    yield from _unenforced_notices(job)


def _unenforced_notices(job: Manifest) -> Iterator[str]:
    told = [(path, each) for path, each in _containers(job) if each["name"] not in _OURS]
    limited = [path for path, container in told if devices.has_limits(container)]
    if limited:
        yield f"limits of cpu and memory are not enforced on this machine ({', '.join(limited)})"
    guarded = [mount for _, pod in _pods(job) for mount in volumes.read_only_mounts(pod)]
    if guarded:
        yield f"readOnly mounts can be written on this machine ({', '.join(dict.fromkeys(guarded))})"


def _check_devices(path: str, wanted: Mapping[str, int], config: LocalConfig) -> None:
    for name in wanted:
        if config.gpus != "ignore" and not devices.is_gpu(name):
            hint = "leave it out, or have it ignored with every wish for a device ([ptjob] local_gpus = ignore)"
            raise UnsupportedByBackend.of(f"{path}[{name}]", f"this machine offers GPUs only; {hint}")
        if config.gpus == "refuse":
            hint = "choose ignore (run on the CPU) or how many devices this machine offers ([ptjob] local_gpus)"
            raise UnsupportedByBackend.of(f"{path}[{name}]", f"devices are refused on this machine; {hint}")


def _check_total(role: str, total: int, config: LocalConfig) -> None:
    if isinstance(config.gpus, int) and total > config.gpus:
        why = f"the job requests {total} devices in all, this machine offers {config.gpus} ([ptjob] local_gpus)"
        raise UnsupportedByBackend.of(f"spec.pytorchReplicaSpecs.{role}", why)


def _images(job: Manifest, config: LocalConfig) -> tuple[dict[str, ImageFacts], list[str]]:
    images: dict[str, ImageFacts] = {}
    notices = []
    fetching = {each["image"] for _, each in _containers(job) if each["name"] == sync_code.CONTAINER}
    for name in dict.fromkeys(container["image"] for _, container in _containers(job)):
        stand_in = config.stand_in(name)
        if stand_in is None and name in fetching:
            images[name] = ImageFacts(python=sys.executable, entrypoint=_SYNC, env={}, files={})
            continue
        if stand_in is None:
            text = "[ptjob] local_images has no entry for it; its files and working directory are missing"
            notices.append(f"image {name}: {text}, python is {config.interpreter}")
            continue
        from ptjob_provider.core.local.image import read_image  # noqa: PLC0415 - the parser is slow to import

        python = stand_in.python or config.interpreter
        images[name], unapplied = read_image(stand_in.context, python=python, image=name)
        left_out = f"; not applied: {', '.join(unapplied)}" if unapplied else ""
        notices.append(f"image {name}: replaced by {stand_in.context}; python is {python}{left_out}")
    return images, notices


def _referenced(job: Manifest, config: LocalConfig) -> Stores:
    stores = Stores(secrets=config.secrets, config_maps=config.config_maps)
    found = Stores(secrets={}, config_maps={})
    for path, pod in _pods(job):
        check_pod(path, pod, claims=config.claims_of(job["metadata"]["namespace"]))
        found = merged(found, referenced(path, pod, stores))
    return found


def _event(job: Manifest, text: str) -> Manifest:
    meta, now = job["metadata"], instant(datetime.now(UTC))
    about = {"apiVersion": job["apiVersion"], "kind": job["kind"]}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": meta["namespace"], "name": f"{meta['name']}.{zlib.crc32(text.encode()):08x}"},
        "involvedObject": {**about, "namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]},
        "type": "Normal",
        "reason": "NotApplied",
        "message": text,
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": "ptjob-provider"},
    }
