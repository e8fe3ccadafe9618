"""Build field selectors for events about an object: by uid, else by kind and name.

Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest


def by_uid(uid: str) -> str:
    """Return the selector of the events about one object."""
    return f"involvedObject.uid={uid}"


def by_name(kind: str, name: str) -> str:
    """Return the selector of the events about an object known by name only; includes its predecessors' events."""
    return f"involvedObject.kind={kind},involvedObject.name={name}"


def subjects_of(event: Manifest) -> tuple[str, str]:
    """Return the two selectors that match this event."""
    about = event.get("involvedObject") or {}
    return by_uid(about.get("uid") or ""), by_name(about.get("kind") or "", about.get("name") or "")


def told_at(event: Manifest) -> str:
    """Return the event's creation on the server, whose clock dates jobs as well; without one, sorts last."""
    return str((event.get("metadata") or {}).get("creationTimestamp") or "~")
