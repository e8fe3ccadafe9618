"""Convert the pod history to JSON of bounded size, for an annotation or a file, and back."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from ptjob_provider.core.history.pod_history import (
    ContainerKind,
    PodHistory,
    Removal,
    Restarts,
    Termination,
    Waiting,
    WaitKind,
)
from ptjob_provider.core.identity import RECORD_ANNOTATION, annotation_of
from ptjob_provider.core.status import parse_instant
from ptjob_provider.core.versions import MALFORMED, known_fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LIMIT = 16 * 1024
"""Maximum bytes of the annotation; etcd, every client's watch and `kubectl get -o yaml` carry it."""
MAX_TERMINATIONS = 64
_FIRST_FAILURES = 4
"""Number of first failures to keep. The first by the nodes' clocks may be a consequence; the cause is among these."""
_SHORT = 400
"""Characters to which a long message of a first failure or the last end is cut."""
_HALVED = ("queue", "waiting", "held_up", "restart_counts", "removals", "operator_deleted", "notices", "leaving")

_T = TypeVar("_T")


def to_text(history: PodHistory, limit: int = LIMIT) -> str:
    """Return the history as JSON of at most `limit` bytes.

    The current state is left out, because the next observation restores it. If the rest is too large, parts of it are
    dropped in this order: the messages of ends other than the first failures and the last end, these ends themselves,
    of the oldest restarts first, and only then parts of the rest.
    """
    text = _dump(history)
    while len(text.encode()) > limit and (smaller := _smaller(history)) != history:
        history, text = smaller, _dump(smaller)
    return text


def from_text(text: str) -> PodHistory:
    """Parse the text of `to_text`, ignoring unknown fields; an unreadable text gives an empty history."""
    try:
        return _read(json.loads(text))
    except MALFORMED:
        return PodHistory()  # somebody has edited the text: the history is lost, the job continues


def bounded(history: PodHistory) -> PodHistory:
    """Return the history with at most MAX_TERMINATIONS ends."""
    surplus = len(history.terminations) - MAX_TERMINATIONS
    return _without(history, _spare(history)[:surplus]) if surplus > 0 else history


# --- shortening


def _smaller(history: PodHistory) -> PodHistory:
    """Return the history with one item fewer or shorter; an equal history if nothing can be dropped."""
    if spare := _spare(history):
        longest = _longest(spare)
        return _with_message(history, longest, 0) if longest.message else _without(history, spare[:1])
    if history.terminations and len((longest := _longest(history.terminations)).message) > _SHORT:
        return _with_message(history, longest, max(len(longest.message) // 2, _SHORT))
    halves: dict[str, Any] = {name: getattr(history, name)[: len(getattr(history, name)) // 2] for name in _HALVED}
    shorter = replace(history, **halves)
    return _without(history, history.terminations[1:2]) if shorter == history else shorter


def _spare(history: PodHistory) -> list[Termination]:
    """Return the ends that may be dropped: all except the first failures and the last end, in the order of dropping.

    Those before a later run of their container come first, then the oldest. The order depends on nothing but the ends:
    pods show a dropped one again at the next look, and it must not take the place of another.
    """
    ends = sorted(history.terminations, key=lambda end: (end.ended_at, end.run, end.key))
    failures = [end for end in ends if end.failed and not end.stopped]
    kept = {end.key for end in [*failures[:_FIRST_FAILURES], *ends[-1:]]}
    last_run: dict[tuple[str, str], int] = {}
    for end in ends:
        container = (end.replica, end.container)
        last_run[container] = max(end.run, last_run.get(container, 0))
    spare = (end for end in ends if end.key not in kept)
    return sorted(spare, key=lambda end: end.run == last_run[end.replica, end.container])


def _without(history: PodHistory, dropped: Sequence[Termination]) -> PodHistory:
    keys = {end.key for end in dropped}
    return replace(history, terminations=tuple(end for end in history.terminations if end.key not in keys))


def _longest(ends: Sequence[Termination]) -> Termination:
    return max(ends, key=lambda end: len(end.message))


def _with_message(history: PodHistory, end: Termination, length: int) -> PodHistory:
    """Return the history with this end's message cut to its last characters."""
    short = replace(end, message=end.message[-length:] if length else "")
    ends = tuple(short if other.key == end.key else other for other in history.terminations)
    return replace(history, terminations=ends)


# --- JSON


def _dump(history: PodHistory) -> str:
    counts = tuple(entry for entry in history.restart_counts if entry.total or entry.settled)
    lasting = replace(history, running=(), finished=(), placed=(), nodes=(), restart_counts=counts)
    return json.dumps({"version": 1, **_plain(lasting)}, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> dict[str, Any]:
    """Return a value's fields that differ from their defaults."""
    pairs = ((field, getattr(value, field.name)) for field in fields(value))
    return {field.name: _json(item) for field, item in pairs if item != field.default}


def _json(item: object) -> object:
    if isinstance(item, datetime):
        return item.isoformat()
    if isinstance(item, tuple):
        return [each if isinstance(each, str) else _plain(each) for each in item]
    return item


_PARTS: Mapping[str, type[Any]] = {
    "terminations": Termination,
    "removals": Removal,
    "waiting": Waiting,
    "held_up": Waiting,
    "restart_counts": Restarts,
}


def _read(plain: Mapping[str, Any]) -> PodHistory:
    parts = {
        name: tuple(_value(_PARTS[name], item) if name in _PARTS else str(item) for item in items)
        for name, items in plain.items()
        if isinstance(items, list)
    }
    return _value(PodHistory, {**plain, **parts})


def _value(cls: type[_T], plain: Mapping[str, Any]) -> _T:
    return cls(**{name: _field(cls, name, item) for name, item in known_fields(cls, plain).items()})


def _field(cls: type[Any], name: str, item: Any) -> object:
    if name.endswith("_at") or name in {"since", "queued_since"}:
        if (instant := parse_instant(item)) is None:
            raise ValueError(item)
        return instant
    if name == "returned":
        json.loads(item)
    if name == "kind":
        return (WaitKind if cls is Waiting else ContainerKind)(item)
    return item


def stored_in(job: Mapping[str, Any]) -> PodHistory:
    """Return the history stored on a job's object; an empty one if there is none."""
    return from_text(annotation_of(job, RECORD_ANNOTATION))
