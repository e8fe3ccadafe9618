"""Parse scheduling and metadata of pods: labels, selectors, tolerations, pull secrets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.spec import literals
from ptjob_provider.core.spec.settings import check_known

if TYPE_CHECKING:
    from collections.abc import Mapping

_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_MAX_SUBDOMAIN = 253
_WORD = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"((?=[^/]{{1,253}}/){_SUBDOMAIN}/)?{_WORD}")
_VALUE = re.compile(rf"({_WORD})?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_TOLERATION: Mapping[str, literals.Reader[Any]] = {
    "key": literals.argument,
    "operator": literals.word("Equal", "Exists", "Lt", "Gt"),
    "value": literals.argument,
    "effect": literals.word("NoSchedule", "PreferNoSchedule", "NoExecute"),
    "tolerationSeconds": literals.integer(0, literals.MAX_INT64),
}
_AFFINITY = ("nodeAffinity", "podAffinity", "podAntiAffinity")


def namespace(field: str, value: Any) -> str:
    """Parse a namespace's name."""
    if not isinstance(value, str) or not _NAMESPACE.fullmatch(value):
        raise InvalidSpec.of(
            field, value, "at most 63 lower-case letters, digits and '-', a letter or digit at both ends"
        )
    return value


def annotation_map(field: str, value: Any) -> dict[str, str]:
    """Parse annotations: qualified names, in any case, and any text."""
    found = literals.text_map(field, value)
    for key in found:
        qualified_name(field, key.lower())
    return found


def label_map(field: str, value: Any) -> dict[str, str]:
    """Parse labels, or a selector: qualified names, values of at most 63 letters, digits, '-', '_', '.'."""
    found = literals.text_map(field, value)
    for key, item in found.items():
        qualified_name(field, key)
        label_value(f"{field}.{key}", item)
    return found


def label_value(field: str, value: Any) -> str:
    """Parse one label's value."""
    if not isinstance(value, str) or not _VALUE.fullmatch(value):
        raise InvalidSpec.of(
            field, value, "at most 63 letters, digits, '-', '_' and '.', a letter or digit at both ends"
        )
    return value


def qualified_name(field: str, value: Any) -> str:
    """Parse the key of a label, or a name of the same form."""
    if not isinstance(value, str) or not _KEY.fullmatch(value):
        raise InvalidSpec.of(field, value, "a name such as team or example.com/team")
    return value


def tolerations(field: str, value: Any) -> tuple[Mapping[str, Any], ...]:
    """Parse a list of core/v1 Toleration objects."""
    return tuple(_toleration(f"{field}[{index}]", item) for index, item in enumerate(literals.sequence(field, value)))


def affinity(field: str, value: Any) -> Mapping[str, Any]:
    """Parse a core/v1 Affinity object; the API server validates its parts."""
    found = literals.mapping(field, value)
    for key in found:
        check_known(f"{field}.{key}", key, _AFFINITY)
    return found


def secret_names(field: str, value: Any) -> tuple[str, ...]:
    """Parse the names of secrets, each as a text or as `{"name": …}`."""
    items = enumerate(literals.sequence(field, value))
    return tuple(_secret_name(f"{field}[{index}]", _name_of(item)) for index, item in items)


def _secret_name(field: str, value: Any) -> str:
    name = literals.text(field, value)
    if len(name) > _MAX_SUBDOMAIN or not re.fullmatch(_SUBDOMAIN, name):
        raise InvalidSpec.of(field, value, "the name of a Secret (lower-case letters, digits, '-', '.')")
    return name


def _name_of(item: Any) -> Any:
    return item["name"] if isinstance(item, dict) and set(item) == {"name"} else item


def _toleration(path: str, item: Any) -> Mapping[str, Any]:
    found = {key: part for key, part in literals.mapping(path, item).items() if part is not None}
    for key in found:
        check_known(f"{path}.{key}", key, tuple(_TOLERATION))
    return {key: _TOLERATION[key](f"{path}.{key}", part) for key, part in found.items()}
