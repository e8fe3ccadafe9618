"""Places of fields in a job's object, and refusals: each field declares them, `kinds` writes and refuses accordingly.

A place belongs to an owner: `container` is the training container of each role, `pod` its pod's spec, and a kind's name
the spec of that kind's object.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ONLY_RUNTIME = "only its runtime can say it; have a TrainingRuntime that does, and name it with `runtime`"
"""Reason why a TrainJob refuses a part of its pods."""

PLACES = "places"
"""Key of a field's metadata."""


def plain(value: Any) -> Any:
    """Return a parsed value in the wire format."""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value.to_wire() if hasattr(value, "to_wire") else value


@dataclass(frozen=True)
class Place:
    """Place of a field's value in its owner.

    Attributes:
        path: names of the maps and of the value, joined by dots; `*` is each item of a map or a list.
        wire: returns the value in the wire format. None: a function of `kinds` that reads the field writes the value,
            because it depends on other parts of the object.
    """

    path: str
    wire: Callable[[Any], Any] | None = plain


@dataclass(frozen=True)
class Refused:
    """Refusal of a field by a kind.

    Attributes:
        why: the reason, or what to do instead.
    """

    why: str


def by_function(path: str) -> Place:
    """Return a place that functions of `kinds` write; the references of the field lead to them."""
    return Place(path, None)


def declared(places: Mapping[str, str | Place | Refused]) -> dict[str, Place | Refused]:
    """Return places and refusals by owner; a text is the path of a place."""
    return {owner: Place(each) if isinstance(each, str) else each for owner, each in places.items()}


@cache
def places(cls: type, owner: str) -> Mapping[str, Place]:
    """Return the places in one owner of the fields that a dataclass declares, by field."""
    return {each.name: at for each in fields(cls) if isinstance(at := each.metadata[PLACES].get(owner), Place)}


@cache
def refusals(cls: type, kind: str) -> Mapping[str, str]:
    """Return the fields of a dataclass that a kind refuses: name → reason."""
    return {each.name: no.why for each in fields(cls) if isinstance(no := each.metadata[PLACES].get(kind), Refused)}


def field_at(cls: type, path: str, *owners: str) -> str:
    """Return the field that stands at this path in one of these owners; "" if there is none."""
    return next((name for owner in owners for name, at in places(cls, owner).items() if at.path == path), "")
