"""Recorded stories: successive observations of one job, and the messages about it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from ptjob_provider.core import history, kinds
from ptjob_provider.core.diagnosis import (
    Diagnosis,
    Limits,
    WaitingNotice,
    deleted,
    diagnose,
    ending,
    outlook,
    waiting_reason,
)
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.status import JobPhase, JobStatus
from recorded import DATA, recorded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ptjob_provider.core.history import PodHistory
    from ptjob_provider.core.identity import Manifest

STORIES = sorted(path.stem for path in DATA.glob("*.yaml") if "\nseen:" in path.read_text())
"""Names of the files with a job and its observations."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """One observation of the job."""

    at: datetime
    job: Manifest
    status: JobStatus
    pods: Sequence[Manifest]
    events: Sequence[Manifest]
    is_deleted: bool


@dataclass(frozen=True, kw_only=True)
class Story:
    """A story up to its last observation; `waits` are the messages in the task's log about waiting."""

    ref: JobRef
    status: JobStatus
    is_deleted: bool
    limits: Limits
    record: PodHistory
    ranks: dict[str, int]
    now: datetime
    waits: tuple[str, ...]

    @property
    def diagnosis(self) -> Diagnosis | None:
        """The final diagnosis: why the job failed or has to be ended; None if it succeeded or may continue."""
        if self.is_deleted:
            return deleted(self.record, ranks=self.ranks)
        if self.status.phase is JobPhase.SUCCEEDED:
            return None
        if self.status.phase is JobPhase.FAILED:
            return diagnose(self.record, self.status, ranks=self.ranks)
        return ending(self.record, self.status, now=self.now, limits=self.limits, ranks=self.ranks)


@cache
def read(name: str, *, twice: bool = False, stored: bool = False) -> Story:
    """Build the pod history of a story.

    Args:
        name: Name of its file.
        twice: Observe everything twice.
        stored: Serialize and parse the history before each observation, and observe everything twice.
    """
    recording = recorded(name)
    job, record = recording["job"], history.PodHistory()
    ranks = {replica.name: replica.rank for replica in kinds.replicas(job)}
    limits = Limits(**recording.get("limits", {}))
    waiting, waits = WaitingNotice(), []
    for look in worlds(recording):
        if waiting.is_due(look.at):  # how long the previous reason lasted
            waits.append(waiting.report(outlook(record, limits=limits)))
        for _ in range(2 if twice or stored else 1):
            record = history.from_text(history.to_text(record)) if stored else record
            record = kinds.observe(record, job, look.pods, look.events, now=look.at, replicas=len(ranks))
        reason = waiting_reason(record, look.status, replicas=len(ranks), rank0=min(ranks, key=ranks.__getitem__))
        waiting.update(reason, look.at)
    if waiting.is_due(look.at):
        waits.append(waiting.report(outlook(record, limits=limits)))
    return Story(
        ref=JobRef.of(job),
        status=kinds.observed_status(look.job, record),
        is_deleted=look.is_deleted,
        record=record,
        ranks=ranks,
        now=look.at,
        waits=tuple(filter(None, waits)),
        limits=limits,
    )


def worlds(recording: Mapping[str, Any]) -> Iterator[Look]:
    """Yield the observations of a story; events accumulate, and the job's status stays until it changes."""
    events: dict[str, dict[str, Any]] = {}
    status = recording["job"].get("status", {})
    for look in recording["seen"]:
        events |= {event["metadata"]["name"]: event for event in look.get("events", ())}
        status = look.get("status", status)
        yield Look(
            at=datetime.fromisoformat(look["at"]),
            job={**recording["job"], "status": status},
            status=kinds.read_status({**recording["job"], "status": status}),
            pods=tuple(look.get("pods", ())),
            events=tuple(events.values()),
            is_deleted=look.get("deleted", False),
        )


def tell(name: str) -> str:
    """Return the messages for a person: each change of the reason for waiting, then the diagnosis."""
    story = read(name)
    found = story.diagnosis
    lines = [f"waits: {wait}" for wait in story.waits]
    if found is None:
        end = "succeeded" if story.status.phase is JobPhase.SUCCEEDED else "goes on"
        return "\n".join([*lines, end]) + "\n"
    verdict = f"cause: {found.cause}; {'retried' if found.retryable else 'not retried'}"
    return "\n".join([*lines, verdict, found.report(story.ref)]) + "\n"
