"""Recorded observations of a job, without data of one machine, one cluster and one day.

Uids, container ids and addresses are numbered in the order of their appearance. Times are shifted so that every job has
the same creation time, and folders and namespaces get common names. Different values stay different. Fields without a
value are left out, and an event is in the first look that has it or has a change of it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from cluster.layout import HOME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

NAMESPACE = "team"
CREATED_AT = datetime(2026, 11, 20, 10, tzinfo=UTC)
_NOBODYS_BUSINESS = {
    *("managedFields", "resourceVersion", "generation", "observedGeneration", "hostIPs", "podIPs"),
    *(
        "reportingComponent",
        "reportingInstance",
        "action",
        "serviceAccount",
        "enableServiceLinks",
        "terminationMessagePath",
    ),
}
_ACCOUNT_VOLUME = "kube-api-access-"
_UID = re.compile(r"(?<![0-9a-f])[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?![0-9a-f])")
_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")
_EVENT_NAME = re.compile(r"(?<=\.)[0-9a-f]{16}\b")
_ADDRESS = re.compile(r"(?<![\d.])(?!127\.|0\.0\.0\.0)\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?![\d.])")
_INSTANT = re.compile(r"\b(20\d\d-\d\d-\d\d)([T_ ])(\d\d:\d\d:\d\d)")
_LOG_INSTANT = re.compile(r"\b([EWI])(\d{4} \d\d:\d\d:\d\d)(?=\.\d)")


def impersonal(looks: Sequence[dict[str, Any]], *, namespace: str) -> dict[str, Any]:
    """Return the job's last state, and in `seen` each look at it."""
    created = datetime.fromisoformat(looks[0]["job"]["metadata"]["creationTimestamp"])
    disguise = _Disguise(namespace=namespace, shift=CREATED_AT - created)
    seen = [disguise.look(look) for look in looks]
    return {"job": disguise.object(looks[-1]["job"]), "seen": seen}


class _Disguise:
    """The replacements in one story; the same text always gets the same one."""

    def __init__(self, *, namespace: str, shift: timedelta) -> None:
        self._namespace = namespace
        self._shift = shift
        self._numbers: dict[re.Pattern[str], dict[str, str]] = defaultdict(dict)
        self._events: dict[str, dict[str, Any]] = {}

    def look(self, look: dict[str, Any]) -> dict[str, Any]:
        """Return one look; a deleted job has no status."""
        at = look["at"] + self._shift
        status = {"deleted": True} if look["deleted"] else {"status": self.object(look["job"]).get("status", {})}
        seen = {"at": f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 100_000}Z", **status}
        events = list(self._news(look["events"]))
        return {**seen, "pods": [self.object(one) for one in look["pods"]], **({"events": events} if events else {})}

    def _news(self, events: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for event in events:
            found, name = self.object(event), event["metadata"]["name"]
            if self._events.get(name) != found:
                self._events[name] = found
                yield found

    def object(self, found: dict[str, Any]) -> dict[str, Any]:
        changed: dict[str, Any] = _with_texts(_stripped(found), self._text)
        return changed

    def _text(self, text: str) -> str:
        text = text.replace(self._namespace, NAMESPACE).replace(f"{HOME}/kubelet", "/var/lib/kubelet")
        for pattern, number in _NUMBERED:
            text = pattern.sub(self._numbering(pattern, number), text)
        return _LOG_INSTANT.sub(self._moved_log, _INSTANT.sub(self._moved, text))

    def _numbering(self, pattern: re.Pattern[str], number: Callable[[int], str]) -> Callable[[re.Match[str]], str]:
        known = self._numbers[pattern]
        return lambda found: known.setdefault(found[0], number(len(known) + 1))

    def _moved(self, found: re.Match[str]) -> str:
        at = datetime.fromisoformat(f"{found[1]}T{found[3]}") + self._shift
        return f"{at:%Y-%m-%d}{found[2]}{at:%H:%M:%S}"

    def _moved_log(self, found: re.Match[str]) -> str:
        at = datetime.strptime(f"{CREATED_AT:%Y}{found[2]}", "%Y%m%d %H:%M:%S").replace(tzinfo=UTC) + self._shift
        return f"{found[1]}{at:%m%d %H:%M:%S}"


_NUMBERED: tuple[tuple[re.Pattern[str], Callable[[int], str]], ...] = (
    (_UID, lambda number: f"00000000-0000-4000-8000-{number:012d}"),
    (_DIGEST, lambda number: f"{number:012x}"),
    (_EVENT_NAME, str),
    (_ADDRESS, lambda number: f"192.0.2.{number}"),
)


def _with_texts(found: Any, change: Callable[[str], str]) -> Any:
    """Return the value with every text in it replaced."""
    if isinstance(found, dict):
        return {key: _with_texts(value, change) for key, value in found.items()}
    if isinstance(found, list):
        return [_with_texts(one, change) for one in found]
    return change(found) if isinstance(found, str) else found


def _stripped(found: Any) -> Any:
    if isinstance(found, dict):
        kept = {key: _stripped(value) for key, value in found.items() if key not in _NOBODYS_BUSINESS}
        return {key: value for key, value in kept.items() if value not in (None, "", [])}
    return list(_kept(found)) if isinstance(found, list) else found


def _kept(items: Sequence[Any]) -> Iterator[Any]:
    for item in items:
        name = item.get("name") if isinstance(item, dict) else None
        if not (isinstance(name, str) and name.startswith(_ACCOUNT_VOLUME)):
            yield _stripped(item)
