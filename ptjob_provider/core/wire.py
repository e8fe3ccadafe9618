"""Convert objects of any Kubernetes client and version to wire dicts.

Such an object lists its attributes (`openapi_types`) and their wire names (`attribute_map`); no client is imported
here.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any


def is_model(value: object) -> bool:
    """Return whether the value is an object of a Kubernetes client, such as a V1Volume.

    Checks the class: an item of a pipeline's loop has an attribute of any name (kfp's `LoopParameterArgument`).
    """
    return hasattr(type(value), "openapi_types") and hasattr(type(value), "attribute_map")


def to_wire(value: Any) -> Any:
    """Return the value with client objects converted to dicts of their set fields; lists and maps are copied.

    Instants of such an object become RFC 3339 texts.
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
    """Return an attribute's value; lists and maps may hold instants, too."""
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
