"""Validates a watcher's arguments; an error fails the parsing of the DAG with field, value and allowed values."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

_URL = re.compile(r"(?!file:|local:)[a-z][a-z0-9+.-]*://[^/]+.*|(file|local):///.*")
_SECRET = re.compile(r"secret|password|token|credential|(^|_)key$|sas|passphrase", re.IGNORECASE)


def source(value: Any) -> str:
    """Return the address as text."""
    found = str(value) if isinstance(value, str) or hasattr(value, "__fspath__") or hasattr(value, "protocol") else ""
    if found.startswith("/") or _URL.fullmatch(found):
        return found
    raise InvalidSpec.of(
        "source", value, "give a directory's absolute path or a URL such as 's3://bucket/incoming', without templates"
    )


def connection(value: Any) -> str | None:
    """Return the connection's name."""
    return None if value is None else text("conn_id", value)


def storage_options(value: Any) -> dict[str, Any] | None:
    """Return the options; secrets are refused, because a DAG file's values are stored unencrypted."""
    if value is None:
        return None
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise InvalidSpec.of("storage_options", type(value).__name__, "give a dict of fsspec's options by their names")
    for name in _names(value):
        if _SECRET.search(name):
            raise InvalidSpec(f"storage_options: {name!r} is not allowed; secrets belong in a connection: conn_id=…")
    try:
        json.dumps(value)
    except (TypeError, ValueError) as error:
        raise InvalidSpec(f"storage_options: only JSON values are allowed ({error})") from None
    return value


def one_of(field: str, value: Any, allowed: Sequence[str]) -> str:
    """Return the value if it is one of these."""
    if value not in allowed:
        raise InvalidSpec.of(field, value, "give " + " or ".join(map(repr, allowed)))
    return str(value)


def text(field: str, value: Any) -> str:
    """Return a text if it is not empty."""
    if not isinstance(value, str) or not value:
        raise InvalidSpec.of(field, value, "give a text")
    return value


def marker(value: Any, batch: str) -> str | None:
    """Return the marker's name; None for files, whatever the default is."""
    if batch == "file":
        if value not in {None, "_SUCCESS"}:
            raise InvalidSpec.of("marker", value, "a file has no marker, it settles; leave it out, or batch='folder'")
        return None
    if value is not None and (not isinstance(value, str) or not value or "/" in value):
        raise InvalidSpec.of("marker", value, "give the name of a file in the batch's folder, or None")
    return value


def seconds(field: str, value: Any, *, least: float) -> float:
    """Return a number of seconds."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or value < least:
        raise InvalidSpec.of(field, value, f"give seconds, {least:g} or more")
    return float(value)


def _names(options: dict[str, Any]) -> list[str]:
    """Return the names of all options, including nested ones."""
    found = []
    for name, value in options.items():
        found.append(str(name))
        if isinstance(value, dict):
            found.extend(_names(value))
    return found
