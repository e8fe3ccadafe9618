"""Validate labels, annotations and the types of a pod's parts like the API server; CRDs' schemas do not cover them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.spec import pods

if TYPE_CHECKING:
    from collections.abc import Iterator


_MAX_ANNOTATIONS = 256 * 1024


def check_labels(path: str, meta: Mapping[str, Any]) -> None:
    """Check labels and annotations, including a pod template's, whose pods could not be created otherwise.

    Raises:
        InvalidSpec: the text names the key or the value.
    """
    pods.label_map(f"{path}.labels", _texts(f"{path}.labels", meta))
    annotations = pods.annotation_map(f"{path}.annotations", _texts(f"{path}.annotations", meta))
    size = sum(len(text.encode()) for pair in annotations.items() for text in pair)
    if size > _MAX_ANNOTATIONS:
        raise InvalidSpec.of(f"{path}.annotations", f"{size} bytes", f"at most {_MAX_ANNOTATIONS} in all")


def _texts(path: str, meta: Mapping[str, Any]) -> dict[str, str]:
    found = meta.get(path.rpartition(".")[2]) or {}
    for key, value in found.items():
        if value is not None and not isinstance(value, str):
            raise InvalidSpec.of(f"{path}.{key}", value, "a text: quote it")
    return {key: value or "" for key, value in found.items()}


def check_pod_shape(path: str, pod: Mapping[str, Any]) -> None:
    """Check the types of all parts of a pod that are read here.

    Raises:
        InvalidSpec: the text names the part by its path.
    """
    optional(pod, "nodeSelector", f"{path}.nodeSelector", Mapping)
    for where, volume in items(pod, "volumes", path):
        part(volume, "name", f"{where}.name", str)
        optional(volume, "persistentVolumeClaim", f"{where}.persistentVolumeClaim", Mapping)
        claim = volume.get("persistentVolumeClaim") or {}
        optional(claim, "claimName", f"{where}.persistentVolumeClaim.claimName", str)
    part(pod, "containers", f"{path}.containers", list)
    containers = [*items(pod, "containers", path), *items(pod, "initContainers", path)]
    for where, container in containers:
        _check_container_shape(where, container)


def _check_container_shape(path: str, container: Mapping[str, Any]) -> None:
    optional(container, "name", f"{path}.name", str)
    for where, variable in items(container, "env", path):
        part(variable, "name", f"{where}.name", str)
    for where, mount in items(container, "volumeMounts", path):
        part(mount, "name", f"{where}.name", str)
        part(mount, "mountPath", f"{where}.mountPath", str)
        optional(mount, "subPath", f"{where}.subPath", str)
    optional(container, "workingDir", f"{path}.workingDir", str)
    optional(container, "resources", f"{path}.resources", Mapping)
    for name in ("requests", "limits"):
        optional(container.get("resources") or {}, name, f"{path}.resources.{name}", Mapping)


def part(owner: Mapping[str, Any], name: str, path: str, kind: type = Mapping) -> Any:
    """Return a required part, checked for its type and for content.

    Raises:
        InvalidSpec: it is invalid or missing; the text names it by its path.
    """
    found = owner.get(name)
    if not isinstance(found, kind) or not found:
        raise InvalidSpec.of(path, found, f"required: {_WORDS[kind]} that is not empty")
    return found


def optional(owner: Mapping[str, Any], name: str, path: str, kind: type) -> None:
    """Check the type of an optional part.

    Raises:
        InvalidSpec: it is wrong; the text names the part by its path.
    """
    found = owner.get(name)
    if found is not None and not isinstance(found, kind):
        raise InvalidSpec.of(path, found, _WORDS[kind])


def items(owner: Mapping[str, Any], name: str, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield path and item of a list of maps; a missing list is empty.

    Raises:
        InvalidSpec: it is no list, or an item is no map.
    """
    optional(owner, name, f"{path}.{name}", list)
    for index, item in enumerate(owner.get(name) or []):
        if not isinstance(item, Mapping):
            raise InvalidSpec.of(f"{path}.{name}[{index}]", item, _WORDS[Mapping])
        yield f"{path}.{name}[{index}]", item


_WORDS: Mapping[type, str] = {Mapping: "a map", list: "a list", str: "a text", int: "a whole number"}
