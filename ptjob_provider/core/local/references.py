"""Resolve the names that a job's pods refer to: values, volumes, fields. Each must exist and stay in its place."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec, UnsupportedByBackend
from ptjob_provider.core.local import volumes
from ptjob_provider.core.local.environment import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

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
