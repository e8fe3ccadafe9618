"""Minimal pods and events as the API server returns them, and a helper that observes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from ptjob_provider.core.history import PodHistory, observe

NOW = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
POD = "digits-worker-0"


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def stamp(seconds: float) -> str:
    return after(seconds).isoformat()


def ended(code: int = 1, *, start: float = 0, end: float = 10, **more: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "startedAt": stamp(start), "finishedAt": stamp(end), **more}}


def pod(*statuses: dict[str, Any], phase: str = "Running", uid: str = "u1", **meta: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": POD, "uid": uid, **meta},
        "status": {"phase": phase, "containerStatuses": list(statuses)},
    }


def container(state: dict[str, Any], restarts: int = 0, *, name: str = "pytorch", **last: Any) -> dict[str, Any]:
    return {"name": name, "restartCount": restarts, "state": state, "lastState": last}


def event(reason: str, message: str, *, seconds: float = 0, name: str = POD, **more: Any) -> dict[str, Any]:
    about = {"involvedObject": {"kind": "Pod", "name": name}}
    return {**about, "reason": reason, "message": message, "lastTimestamp": stamp(seconds), **more}


def look(record: PodHistory, *pods: dict[str, Any], at: float = 0, **more: Any) -> PodHistory:
    return observe(record, pods=pods, now=after(at), **more)


RUNNING: dict[str, Any] = {"running": {"startedAt": stamp(0)}}
CREATING: dict[str, Any] = {"waiting": {"reason": "ContainerCreating"}}
BACK_OFF: dict[str, Any] = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
