"""Which Secrets a job's programs get as variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def secrets_in_env(job: Mapping[str, Any]) -> dict[str, set[str] | None]:
    """Return the names of the Secrets that variables of any container come from, with the keys; None: all keys."""
    found: dict[str, set[str] | None] = {}
    for container in _containers(job):
        for variable in container.get("env") or ():
            if reference := (variable.get("valueFrom") or {}).get("secretKeyRef"):
                keys = found.setdefault(reference["name"], set())
                if keys is not None:
                    keys.add(reference["key"])
        for source in container.get("envFrom") or ():
            if reference := source.get("secretRef"):
                found[reference["name"]] = None
    return found


def _containers(job: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for role in job["spec"]["pytorchReplicaSpecs"].values():
        pod = role["template"]["spec"]
        yield from pod.get("initContainers") or ()
        yield from pod["containers"]
