"""Parse parts of a pod in the wire format; the API server validates their content."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec, one_of
from ptjob_provider.core.manifest import load_object
from ptjob_provider.core.spec import literals
from ptjob_provider.core.spec.settings import check_known

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Manifest

_SOURCES = ("configMapRef", "secretRef")
_OF_ITS_OWN = ("name", "generateName", "namespace", "uid", "resourceVersion", "creationTimestamp", "managedFields")


def env_sources(field: str, value: Any) -> tuple[Mapping[str, Any], ...]:
    """Parse a list of core/v1 EnvFromSource objects, or of `{"secret": NAME}` and `{"config_map": NAME}`."""
    items = enumerate(literals.sequence(field, value))
    return tuple(env_source(f"{field}[{index}]", item) for index, item in items)


def env_source(path: str, value: Any) -> Mapping[str, Any]:
    """Parse one of them."""
    given = literals.mapping(path, value)
    short = {"secret": "secretRef", "config_map": "configMapRef"}
    for key in given:
        check_known(f"{path}.{key}", key, (*_SOURCES, *short, "prefix"))
    source = {short.get(key, key): _reference(f"{path}.{key}", key, item) for key, item in given.items()}
    if sum(name in source for name in _SOURCES) != 1:
        raise InvalidSpec.of(path, sorted(given), '{"secret": NAME}, {"config_map": NAME} or an EnvFromSource')
    return source


def containers(field: str, value: Any) -> tuple[Mapping[str, Any], ...]:
    """Parse a list of core/v1 Container objects with names."""
    found = tuple(
        literals.mapping(f"{field}[{index}]", item) for index, item in enumerate(literals.sequence(field, value))
    )
    for index, item in enumerate(found):
        literals.text(f"{field}[{index}].name", item.get("name"))
    return found


def pod_template(field: str, value: Any) -> Manifest:
    """Parse a pod template, a pod or a PodTemplate (a map, a YAML text or a file's path) as a pod template.

    Drops what only one pod can have: its name, its namespace, the API server's fields.
    """
    found = load_object(value, field=field)
    kind = found.get("kind", "Pod")
    if kind not in {"Pod", "PodTemplate"}:
        raise InvalidSpec.of(f"{field}.kind", kind, one_of(("Pod", "PodTemplate")))
    template = literals.mapping(f"{field}.template", found.get("template")) if kind == "PodTemplate" else found
    for name in template:
        check_known(f"{field}.{name}", name, ("apiVersion", "kind", "metadata", "spec", "status"))
    meta = literals.mapping(f"{field}.metadata", template.get("metadata") or {})
    spec = dict(literals.mapping(f"{field}.spec", template.get("spec") or {}))
    for name in ("containers", "initContainers", "volumes"):
        for index, item in enumerate(literals.sequence(f"{field}.spec.{name}", spec.get(name) or [])):
            literals.mapping(f"{field}.spec.{name}[{index}]", item)
    return {"metadata": {name: part for name, part in meta.items() if name not in _OF_ITS_OWN}, "spec": spec}


def _reference(path: str, key: str, value: Any) -> Any:
    return {"name": literals.text(path, value)} if key in {"secret", "config_map"} else value
