"""Implements `events`: shows what the cluster has reported about a job."""

from __future__ import annotations

import re
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ptjob_provider.cli import tables
from ptjob_provider.cli.answers import emit_rows, run
from ptjob_provider.cli.printable import say
from ptjob_provider.core import kinds
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.logs import nanoseconds
from ptjob_provider.core.lookup import find_job
from ptjob_provider.core.status import parse_instant

if TYPE_CHECKING:
    from ptjob_provider.cli.place import Place
    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.identity import Manifest

_MADE_AT = re.compile(r"\.([0-9a-f]{16})$")


def events(place: Place, name: str, *, output: str | None) -> None:
    """Print the events of a job and its pods, oldest first."""
    rows = event_rows(place, name)
    if output:
        emit_rows([row["object"] for row in rows], rows, output)
    elif rows:
        tables.show(tables.events(rows, now=datetime.now(UTC)))
    else:
        why = "nothing has happened to it yet" if place.backend == "local" else "a cluster keeps them for an hour"
        say(f"no events about {place.namespace}/{name}: {why}", err=True)


def event_rows(place: Place, name: str) -> list[dict[str, Any]]:
    """Return the rows for the events of a job and its pods, oldest first."""
    return [event_row(event) for event in run(_events(place, name))]


def event_row(event: Manifest) -> dict[str, Any]:
    """Return the row for one event."""
    about = event.get("involvedObject") or {}
    return {
        "at": _at(event),
        "type": event.get("type") or "Normal",
        "reason": event.get("reason") or "",
        "object": f"{about.get('kind', '').lower()}/{about.get('name', '')}",
        "count": event.get("count") or 1,
        "message": (event.get("message") or "").strip(),
    }


async def _events(place: Place, name: str) -> list[Manifest]:
    backend = place.open()
    job = await find_job(backend, place.namespace, name, kind=place.kind)
    ref, pods = JobRef.of(job), [replica.name for replica in kinds.replicas(job)]
    if not kinds.kind_of(job).HAS_FIXED_POD_NAMES:
        pods += dict.fromkeys([*await _pods_there(backend, ref), *kinds.kind_of(job).told(job).pods])
    return sorted(await place.site().events(ref, pods), key=_order)


async def _pods_there(backend: Backend, ref: JobRef) -> list[str]:
    """Return the names of the job's current pods."""
    async with aclosing(backend.watch(ref)) as watch:
        seen = await anext(watch)
    return [pod["metadata"]["name"] for pod in seen.pods]


def _at(event: Manifest) -> str:
    series = (event.get("series") or {}).get("lastObservedTime")
    when = series or event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
    return str(when or "")


def _order(event: Manifest) -> tuple[datetime, int]:
    """Return the event's second, and its nanoseconds since 1970 within it, for sorting. No time sorts first.

    Only some reporters write fractions of a second; client-go ends the name of every event with the nanoseconds of its
    first occurrence, in hexadecimal digits.
    """
    at = parse_instant(_at(event)) or datetime.min.replace(tzinfo=UTC)
    made = _MADE_AT.search(str(event["metadata"].get("name") or ""))
    exact = int(made[1], 16) if made else nanoseconds(at.isoformat())
    return at.replace(microsecond=0), exact
