"""Reject specs that pass the type checks but not admission: duplicate items, invalid quantities and ports.

The API server stores some lists as maps, by the keys of their items; the webhook parses quantities and ports as
numbers. A path is written as in the API's documentation, `volumes[].emptyDir.sizeLimit`; `{}` are the values of a map.
A part of an unexpected type is skipped: the schema covers it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.spec.resources import quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_CONTAINERS = ("containers[]", "initContainers[]", "ephemeralContainers[]")
_AMOUNTS = ("resources.requests{}", "resources.limits{}")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop")
_METRICS = ("containerResource", "external", "object", "pods", "resource")
_TEMPLATE = "pytorchReplicaSpecs{}.template.spec"
_MAX_PORT = 65535


def _in(owners: Iterable[str], *parts: str) -> tuple[str, ...]:
    return tuple(f"{owner}.{part}" for owner in owners for part in parts)


_POD_KEYS: Mapping[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "volumes": ("name",),
    "imagePullSecrets": ("name",),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "resources.claims": ("name",),
}
_CONTAINER_KEYS: Mapping[str, tuple[str, ...]] = {
    "env": ("name",),
    "ports": ("containerPort", "protocol"),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "resources.claims": ("name",),
    "restartPolicyRules[].exitCodes.values": (),
}
KEYS: Mapping[str, tuple[str, ...]] = {
    **{f"{_TEMPLATE}.{place}": keys for place, keys in _POD_KEYS.items()},
    **{f"{_TEMPLATE}.{owner}.{place}": keys for owner in _CONTAINERS for place, keys in _CONTAINER_KEYS.items()},
}
"""Lists with unique keys; where the items are no maps, with unique items."""

QUANTITIES: tuple[str, ...] = (
    "runPolicy.schedulingPolicy.minResources{}",
    *(f"elasticPolicy.metrics[].{metric}.target.{name}" for metric in _METRICS for name in ("value", "averageValue")),
    *_in(
        (_TEMPLATE,),
        "overhead{}",
        *_AMOUNTS,
        *_in(_CONTAINERS, "env[].valueFrom.resourceFieldRef.divisor", *_AMOUNTS),
        "volumes[].emptyDir.sizeLimit",
        *(f"volumes[].ephemeral.volumeClaimTemplate.spec.{amounts}" for amounts in _AMOUNTS),
        "volumes[].downwardAPI.items[].resourceFieldRef.divisor",
        "volumes[].projected.sources[].downwardAPI.items[].resourceFieldRef.divisor",
    ),
)
PORTS: tuple[str, ...] = _in(
    (_TEMPLATE,), *_in(_in(_CONTAINERS, *_PROBES), "httpGet.port", "tcpSocket.port", "grpc.port")
)

_IMPLIED = {"name": "", "protocol": "TCP"}
"""The API server's defaults for missing keys, applied before it compares."""


def check_admissible(spec: Mapping[str, Any]) -> None:
    """Check that items are unique, and quantities and ports valid.

    Raises:
        InvalidSpec: the text names the part by its path.
    """
    for place, keys in KEYS.items():
        for path, items in _at(spec, place):
            _check_once(path, items, keys)
    for place in QUANTITIES:
        for path, amount in _at(spec, place):
            _check_quantity(path, amount)
    for place in PORTS:
        for path, port in _at(spec, place):
            _check_port(path, port)


def _at(spec: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Yield path and value of everything at a path, except nulls."""
    found: Iterable[tuple[str, Any]] = [("spec", spec)]
    for step in _steps(place):
        found = [inner for path, part in found for inner in _step(path, part, step) if inner[1] is not None]
    yield from found


@functools.cache
def _steps(place: str) -> tuple[str, ...]:
    return tuple(place.replace("[]", ".[]").replace("{}", ".{}").split("."))


def _step(path: str, part: Any, step: str) -> Iterator[tuple[str, Any]]:
    if step == "[]" and isinstance(part, list):
        yield from ((f"{path}[{index}]", item) for index, item in enumerate(part))
    elif step == "{}" and isinstance(part, Mapping):
        yield from ((f"{path}.{name}", item) for name, item in part.items())
    elif isinstance(part, Mapping) and step in part:
        yield f"{path}.{step}", part[step]


def _check_once(path: str, items: Any, keys: tuple[str, ...]) -> None:
    seen: list[object] = []
    for where, item in _step(path, items, "[]"):
        key = [item.get(name, _IMPLIED.get(name)) for name in keys] if keys and isinstance(item, Mapping) else item
        if key in seen:
            told = ", ".join(map(str, key)) if isinstance(key, list) else key
            raise InvalidSpec.of(where, told, "each " + (" and ".join(keys) or "value") + " once")
        seen.append(key)


def _check_quantity(path: str, amount: Any) -> None:
    if isinstance(amount, float):
        raise InvalidSpec.of(path, amount, f'a text or a whole number: write it as "{amount}"')
    quantity(path, amount)


def _check_port(path: str, port: Any) -> None:
    if isinstance(port, int) and not 1 <= port <= _MAX_PORT:
        raise InvalidSpec.of(path, port, f"a port's name, or its number, at least 1, at most {_MAX_PORT}")
