"""Whose events are asked for, as the field selectors that the API server knows: by uid, else by kind and name.

Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest


def by_uid(uid: str) -> str:
    """Return what selects the events about one object."""
    return f"involvedObject.uid={uid}"


def by_name(kind: str, name: str) -> str:
    """Return what selects the events about an object of which only this is known, and about those before it."""
    return f"involvedObject.kind={kind},involvedObject.name={name}"


def subjects_of(event: Manifest) -> tuple[str, str]:
    """Return what would select this event."""
    about = event.get("involvedObject") or {}
    return by_uid(about.get("uid") or ""), by_name(about.get("kind") or "", about.get("name") or "")


def told_at(event: Manifest) -> str:
    """Return when the server was told first, by the clock that dates jobs as well; of what it was not, the end."""
    return str((event.get("metadata") or {}).get("creationTimestamp") or "~")
