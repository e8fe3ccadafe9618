"""Serialize the history to bounded JSON for an annotation or a file."""

from __future__ import annotations

import json
from dataclasses import MISSING, Field, fields, replace
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
from ptjob_provider.core.identity import RECORD_ANNOTATION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LIMIT = 16 * 1024
"""Maximum bytes of the annotation: etcd, every client's watch and `kubectl get -o yaml` carry it."""
MAX_TERMINATIONS = 64
_FIRST_FAILURES = 4
"""Number of first failures to keep: the first by the cluster's clocks may be a consequence, the cause is among
these."""
_SHORT = 400
_LISTS = ("waiting", "held_up", "restart_counts", "removals", "operator_deleted", "notices", "leaving")

_T = TypeVar("_T")


def to_text(history: PodHistory, limit: int = LIMIT) -> str:
    """Return the history as JSON of at most `limit` bytes.

    The current state is not kept: the next observation restores it. If the rest does not fit, it is dropped in this
    order: the oldest restarts, the messages of ends other than the first failures and the last end, those ends
    themselves, and only then parts of the rest. `dropped` counts the missing ends.
    """
    text = _dump(history)
    while len(text.encode()) > limit and (smaller := _smaller(history)) != history:
        history, text = smaller, _dump(smaller)
    return text


def from_text(text: str) -> PodHistory:
    """Parse the text of `to_text`, ignoring unknown fields; an unreadable text gives an empty history."""
    try:
        return _read(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError):
        return PodHistory()  # edited by hand: the history is lost, the job goes on


def bounded(history: PodHistory) -> PodHistory:
    """Return the history with at most MAX_TERMINATIONS ends."""
    while len(history.terminations) > MAX_TERMINATIONS:
        history = _without(history, _droppable(history))
    return history


# --- shortening


def _smaller(history: PodHistory) -> PodHistory:
    """Return the history with one item less or shorter, or the same history when nothing can be dropped."""
    if spare := _spare(history):
        longest, end = _longest(spare), _droppable(history)
        if _has_successor(history, end) or not longest.message:
            return _without(history, end)
        return _with_message(history, longest, _SHORT if len(longest.message) > _SHORT else 0)
    waiting, held_up = _shortened(history.waiting), _shortened(history.held_up)
    shorter = replace(history, waiting=waiting, held_up=held_up, queue=history.queue[:_SHORT])
    if shorter == history and history.terminations:
        longest = _longest(history.terminations)
        shorter = _with_message(history, longest, max(len(longest.message) // 2, _SHORT))
    if shorter == history:
        halves: dict[str, Any] = {name: getattr(history, name)[: len(getattr(history, name)) // 2] for name in _LISTS}
        shorter = replace(history, **halves)
    return _without(history, history.terminations[1]) if shorter == history and history.terminations[1:] else shorter


def _shortened(waits: Sequence[Waiting]) -> tuple[Waiting, ...]:
    return tuple(replace(one, message=one.message[:_SHORT]) for one in waits)


def _spare(history: PodHistory) -> list[Termination]:
    """Return the ends that may be dropped, oldest first: all but the first failures and the last end."""
    ends = sorted(history.terminations, key=lambda one: one.ended_at)
    failures = [one for one in ends if one.failed and not one.stopped]
    kept = {one.key for one in [*failures[:_FIRST_FAILURES], *ends[-1:]]}
    return [one for one in ends if one.key not in kept]


def _has_successor(history: PodHistory, end: Termination) -> bool:
    mine = (end.replica, end.container)
    return any((one.replica, one.container) == mine and one.run > end.run for one in history.terminations)


def _droppable(history: PodHistory) -> Termination:
    spare = _spare(history)
    return next((one for one in spare if _has_successor(history, one)), spare[0])


def _without(history: PodHistory, end: Termination) -> PodHistory:
    kept = tuple(one for one in history.terminations if one.key != end.key)
    return replace(history, terminations=kept, dropped=history.dropped + 1)


def _longest(ends: Sequence[Termination]) -> Termination:
    return max(ends, key=lambda one: len(one.message))


def _with_message(history: PodHistory, end: Termination, length: int) -> PodHistory:
    """Return the history with this end's message cut to its last characters."""
    if len(end.message) <= length:
        return history
    short = replace(end, message=end.message[-length:] if length else "")
    return replace(history, terminations=tuple(short if one.key == end.key else one for one in history.terminations))


# --- JSON


def _dump(history: PodHistory) -> str:
    counts = tuple(one for one in history.restart_counts if one.total or one.settled)
    lasting = replace(history, running=(), finished=(), placed=(), restart_counts=counts)
    return json.dumps({"version": 1, **_plain(lasting)}, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> dict[str, Any]:
    """Return a value's fields that differ from their defaults."""
    pairs = ((one, getattr(value, one.name)) for one in fields(value))
    return {one.name: _json(item) for one, item in pairs if item != _default(one)}


def _default(field: Field[Any]) -> object:
    return field.default if field.default is not MISSING else MISSING


def _json(item: object) -> object:
    if isinstance(item, datetime):
        return item.isoformat()
    if isinstance(item, tuple):
        return [one if isinstance(one, str) else _plain(one) for one in item]
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
        name: tuple(_value(_PARTS[name], one) if name in _PARTS else one for one in items)
        for name, items in plain.items()
        if isinstance(items, list)
    }
    return _value(PodHistory, {**plain, **parts})


def _value(cls: type[_T], plain: Mapping[str, Any]) -> _T:
    fits = {name: _field(cls, name, item) for name, item in plain.items() if name in cls.__annotations__}
    return cls(**fits)


def _field(cls: type[Any], name: str, item: Any) -> object:
    if name.endswith("_at") or name in {"since", "queued_since"}:
        return datetime.fromisoformat(item)
    if name == "kind":
        return (WaitKind if cls is Waiting else ContainerKind)(item)
    return item


def stored_in(job: Mapping[str, Any]) -> PodHistory:
    """Return the history stored on a job's object; an empty one if there is none."""
    text = (job["metadata"].get("annotations") or {}).get(RECORD_ANNOTATION)
    return from_text(text) if text else PodHistory()
