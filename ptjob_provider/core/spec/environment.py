"""Environment of the training program: plain values, and references to values that we never read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.spec import literals
from ptjob_provider.core.spec.settings import check_known

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_REFERENCES = {"secret": "secretKeyRef", "config_map": "configMapKeyRef"}
_ALLOWED = 'a text, a number, {"secret": NAME, "key": KEY} or {"config_map": NAME, "key": KEY}'


@dataclass(frozen=True, kw_only=True)
class EnvVar:
    """One variable: a value, or the source of its value (`value_from`, in the wire format)."""

    name: str
    value: str | None = None
    value_from: Mapping[str, Any] | None = None

    def to_wire(self) -> dict[str, Any]:
        """Return the variable as core/v1 EnvVar."""
        if self.value_from is not None:
            return {"name": self.name, "valueFrom": dict(self.value_from)}
        return {"name": self.name, "value": self.value}


def environment(field: str, value: Any) -> tuple[EnvVar, ...]:
    """Parse a map of variables, or a list of core/v1 EnvVar objects.

    Raises:
        InvalidSpec: a name or a value is invalid; the text never contains values.
    """
    if isinstance(value, list | tuple):
        return tuple(_from_wire(f"{field}[{index}]", item) for index, item in enumerate(value))
    return tuple(_variable(f"{field}.{name}", name, item) for name, item in literals.mapping(field, value).items())


def merged(*layers: Iterable[EnvVar] | None) -> tuple[EnvVar, ...]:
    """Return the variables of all layers; a later layer's value replaces an earlier one in place."""
    found = {variable.name: variable for layer in layers for variable in layer or ()}
    return tuple(found.values())


def _variable(path: str, name: str, value: Any) -> EnvVar:
    _check_name(path, name)
    if isinstance(value, dict):
        return EnvVar(name=name, value_from=_reference(path, value))
    return EnvVar(name=name, value=_plain(path, value))


def _plain(path: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidSpec(f"{path}: a {type(value).__name__} is not allowed; {_ALLOWED}; a switch is quoted")
    return str(value)


def _reference(path: str, value: Mapping[str, Any]) -> dict[str, Any]:
    kinds = [kind for kind in _REFERENCES if kind in value]
    for key in value:
        check_known(f"{path}.{key}", key, (*_REFERENCES, "key", "optional"))
    if len(kinds) != 1 or "key" not in value:
        raise InvalidSpec.of(path, sorted(value), _ALLOWED)
    kind = kinds[0]
    source = {"name": literals.text(f"{path}.{kind}", value[kind]), "key": literals.text(f"{path}.key", value["key"])}
    optional = {"optional": literals.boolean(f"{path}.optional", value["optional"])} if "optional" in value else {}
    return {_REFERENCES[kind]: {**source, **optional}}


def _from_wire(path: str, item: Any) -> EnvVar:
    given = literals.mapping(path, item)
    for key in given:
        check_known(f"{path}.{key}", key, ("name", "value", "valueFrom"))
    name = literals.text(f"{path}.name", given.get("name"))
    _check_name(path, name)
    source = given.get("valueFrom")
    if source is not None:
        return EnvVar(name=name, value_from=dict(literals.mapping(f"{path}.valueFrom", source)))
    return EnvVar(name=name, value=_plain(f"{path}.value", given.get("value", "")))


def _check_name(path: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidSpec.of(path, name, "a name of letters, digits, '_', '-' and '.', not beginning with a digit")
