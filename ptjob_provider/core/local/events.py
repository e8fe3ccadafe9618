"""Synthesize Events from the recorded states of a job: its conditions, and its containers' starts and ends. Pure.

A cluster has more: for pods that are created and deleted, and for back-offs. If the oldest states are deleted, the
oldest kept one still yields its events.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ptjob_provider.core.identity import Manifest

_WARNINGS = ("Failed", "Restarting")

Told = tuple[str, str, str, str]
"""Time, type, reason and message of an event."""


def events_of(job: Manifest, states: Iterable[Mapping[str, Any]]) -> list[Manifest]:
    """Return the events, each once; the states are {"status", "pods"}, oldest first."""
    found: dict[str, Manifest] = {}
    for state in states:
        for told in _of_conditions(state.get("status") or {}):
            _add(found, job["kind"], job, told)
        for pod in state.get("pods") or ():
            for told in _of_containers(pod):
                _add(found, "Pod", pod, told)
    return list(found.values())


def _of_conditions(status: Mapping[str, Any]) -> Iterator[Told]:
    """Yield an event for each true condition, and for the resumption of a suspended job."""
    for each in status.get("conditions") or ():
        if each["status"] == "True" or each["type"] == "Suspended":
            kind = "Warning" if each["type"] in _WARNINGS else "Normal"
            yield each["lastTransitionTime"], kind, each["reason"], each["message"]


def _of_containers(pod: Manifest) -> Iterator[Told]:
    status = pod["status"]
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        name, last, state = container["name"], container.get("lastState") or {}, container.get("state") or {}
        if ended := last.get("terminated"):
            yield from _of_run(name, ended)
        if ended := state.get("terminated"):
            yield from _of_run(name, ended)
        if running := state.get("running"):
            yield running["startedAt"], "Normal", "Started", f"Started container {name}"


def _of_run(name: str, ended: Mapping[str, Any]) -> Iterator[Told]:
    if ended.get("startedAt"):
        yield ended["startedAt"], "Normal", "Started", f"Started container {name}"
    kind = "Warning" if ended["exitCode"] else "Normal"
    said = f"Container {name} ended with exit code {ended['exitCode']}"
    yield ended["finishedAt"], kind, ended.get("reason") or "Ended", said


def _add(found: dict[str, Manifest], kind: str, about: Manifest, told: Told) -> None:
    at, severity, reason, message = told
    meta = about["metadata"]
    key = f"{meta['uid']} {at} {reason} {message}"
    found[key] = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": meta["namespace"], "name": f"{meta['name']}.{zlib.crc32(key.encode()):08x}"},
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": kind,
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
        },
        "type": severity,
        "reason": reason,
        "message": message,
        "count": 1,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "source": {"component": "ptjob-provider"},
    }
