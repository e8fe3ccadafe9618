"""Recorded stories: what was seen of one job, look by look, and what is said about it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING

from ptjob_provider.core import recorder
from ptjob_provider.core.diagnosis import Diagnosis, Limits, diagnose, ending, waiting_reason
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.kinds import pytorchjob
from recorded import DATA, recorded

if TYPE_CHECKING:
    from ptjob_provider.core.recorder import Record
    from ptjob_provider.core.status import JobStatus

STORIES = sorted(path.stem for path in DATA.glob("*.yaml") if "\nseen:\n" in path.read_text())
"""Names of the files that hold a job and how it was seen, look by look."""


@dataclass(frozen=True, kw_only=True)
class Story:
    """A story up to its last look."""

    ref: JobRef
    status: JobStatus
    record: Record
    ranks: dict[str, int]
    now: datetime
    waits: tuple[str, ...]

    @property
    def diagnosis(self) -> Diagnosis | None:
        """What is said at the end: why it failed, or why it has to be ended; None if it may go on."""
        if self.status.phase.is_terminal:
            return diagnose(self.record, self.status, ranks=self.ranks)
        return ending(self.record, self.status, now=self.now, limits=Limits(), ranks=self.ranks)


@cache
def read(name: str, *, twice: bool = False, stored: bool = False) -> Story:
    """Fold a story into a record.

    Args:
        name: of its file.
        twice: look at each world twice.
        stored: put the record into text and back after each look, and look again.
    """
    told = recorded(name)
    job, record = told["job"], recorder.Record()
    ranks = {replica.name: replica.rank for replica in pytorchjob.replicas(job)}
    status, waits = pytorchjob.read_status(job), []
    now = datetime.fromisoformat(told["seen"][0]["at"])
    for look in told["seen"]:
        now = datetime.fromisoformat(look["at"])
        for _ in range(2 if twice or stored else 1):
            record = recorder.from_text(recorder.to_text(record)) if stored else record
            record = recorder.observe(record, pods=look["pods"], events=look.get("events", ()), now=now)
        waits.append(waiting_reason(record, status, replicas=len(ranks)))
    changes = tuple(dict.fromkeys(wait for wait in waits if wait))
    return Story(ref=JobRef.of(job), status=status, record=record, ranks=ranks, now=now, waits=changes)


def tell(name: str) -> str:
    """Return what a person reads: each change of what the job waits for, then the verdict."""
    story = read(name)
    found = story.diagnosis
    lines = [f"waits: {wait}" for wait in story.waits]
    if found is None:
        return "\n".join([*lines, "goes on"]) + "\n"
    verdict = f"cause: {found.cause}; {'retried' if found.retryable else 'not retried'}"
    return "\n".join([*lines, verdict, found.report(story.ref)]) + "\n"
