"""Convert the objects of Kubernetes clients to wire dicts.

This imports no client: objects of any client and version have the list of their attributes (`openapi_types`) and the
attributes' names on the wire (`attribute_map`).
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any


def is_model(value: object) -> bool:
    """Return whether the value is an object of a Kubernetes client, such as a V1Volume.

    Looks at the class, because kfp's `LoopParameterArgument` has attributes of any name.
    """
    return hasattr(type(value), "openapi_types") and hasattr(type(value), "attribute_map")


def literal(text: str) -> str:
    """Return the text escaped, because the kubelet replaces `$(NAME)` in arguments and variables."""
    return text.replace("$", "$$")


def to_wire(value: Any) -> Any:
    """Return the value with client objects converted to dicts of the fields that are set; lists and maps are copied.

    Instants in client objects become RFC 3339 texts.
    """
    if is_model(value):
        return _of_model(value)
    if isinstance(value, dict):
        return {key: to_wire(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(to_wire, value)) if type(value) in {list, tuple} else value
    return value


def _of_model(model: Any) -> dict[str, Any]:
    fields = {model.attribute_map[name]: _part(getattr(model, name)) for name in model.openapi_types}
    return {name: part for name, part in fields.items() if part is not None}


def _part(value: Any) -> Any:
    """Return the wire value of a client object's attribute, including instants in lists and maps."""
    if is_model(value):
        return _of_model(value)
    if isinstance(value, dict):
        return {key: _part(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_part(item) for item in value]
    if isinstance(value, datetime):
        return _instant(value)
    return value.isoformat() if isinstance(value, date) else value


def _instant(value: datetime) -> str:
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat().replace("+00:00", "Z")
