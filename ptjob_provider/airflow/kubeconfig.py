"""Finds the secrets of a kubeconfig, which logs must mask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECRET_KEYS = {
    *("token", "password", "client-key-data"),
    *("id-token", "access-token", "refresh-token", "client-secret", "idp-refresh-token"),
}


def secrets_in(kubeconfig: str | None) -> tuple[str, ...]:
    """Return the credentials of all users, and the environment of their credential plugins.

    A text that is no kubeconfig counts as one secret, because its content is unknown.
    """
    try:
        found = yaml.safe_load(kubeconfig) if kubeconfig else {}
    except yaml.YAMLError:
        found = None
    if not isinstance(found, dict):
        return (str(kubeconfig),)
    return tuple(_secrets(found.get("users")))


def _secrets(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _secrets(item)
    if not isinstance(value, dict):
        return
    for key, item in value.items():
        if isinstance(item, str) and (key in _SECRET_KEYS or (key == "value" and "name" in value)):
            yield item
        yield from _secrets(item)
