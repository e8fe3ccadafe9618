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


def to_wire(value: Any, *, is_part: bool = False) -> Any:
    """Return the value with client objects converted to dicts of the fields that are set; lists and maps are copied.

    Instants in client objects become RFC 3339 texts.

    Args:
        value: any value.
        is_part: the value is a part of a client object.
    """
    if is_model(value):
        fields = {value.attribute_map[name]: getattr(value, name) for name in value.openapi_types}
        return to_wire(fields, is_part=True)
    if isinstance(value, dict):
        return {key: to_wire(item, is_part=is_part) for key, item in value.items() if not (is_part and item is None)}
    if type(value) in {list, tuple}:
        return type(value)(to_wire(item, is_part=is_part) for item in value)
    if is_part and isinstance(value, datetime):
        return _instant(value)
    return value.isoformat() if is_part and isinstance(value, date) else value


def _instant(value: datetime) -> str:
    aware = value if value.tzinfo else value.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat().replace("+00:00", "Z")
