"""Tests of `suspend`, `resume` and `events` of one job. Back-end and inspector are scripted."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fakes import ScriptedBackend
from ptjob_provider.cli import tables
from ptjob_provider.core.kinds.queue import QUEUE_LABEL
from rows import each_row
from stand_in_watches import job

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from click.testing import Result

    from ptjob_provider.core.identity import JobRef, Manifest

WAITS = "team/digits continues when Kueue admits it to the queue vision: ptjob get digits"


class ScriptedSite:
    """Returns the events of a test's script."""

    def __init__(self, *found: Manifest) -> None:
        self.found = found

    async def events(self, _ref: JobRef, _pods: Sequence[str]) -> Sequence[Manifest]:
        return self.found


def with_job(**labels: str) -> ScriptedBackend:
    """Return a back-end with one job, which has these labels."""
    scripted, found = ScriptedBackend(), job()
    found["metadata"]["labels"] = labels
    scripted.jobs["team", "digits"] = found
    return scripted


def event(reason: str, **when: Any) -> Manifest:
    """Return an event with its times."""
    return {"metadata": {}, "involvedObject": {"kind": "Pod", "name": "digits-master-0"}, "reason": reason, **when}


def test_events_are_shown_in_the_order_of_the_time_beside_them(ptjob: Callable[..., Result]) -> None:
    """The scheduler writes microseconds, others whole seconds; within a second, the server's order stays."""
    site = ScriptedSite(
        event("Scheduled", eventTime="2026-11-20T10:00:01.852900Z"),
        event("SuccessfulCreatePod", lastTimestamp="2026-11-20T10:00:01Z"),
        event("SuccessfulCreateService", lastTimestamp="2026-11-20T10:00:01Z"),
        event("Unknown"),
        event("Started", series={"lastObservedTime": "2026-11-20T10:00:01.9Z"}, eventTime="2026-11-20T09:59:00Z"),
        event("Created", metadata={"creationTimestamp": "2026-11-20T10:00:00Z"}),
    )

    rows = json.loads(ptjob(with_job(), "events", "digits", "-o", "json", inspector=site).stdout)

    table = tables.events(rows, now=datetime(2026, 11, 20, 10, 1, 41, tzinfo=UTC))
    assert [(row["reason"], seen) for row, (seen, *_) in zip(rows, table.rows, strict=True)] == [
        ("Unknown", ""),
        ("Created", "1m41s"),
        ("Scheduled", "1m39s"),
        ("SuccessfulCreatePod", "1m40s"),
        ("SuccessfulCreateService", "1m40s"),
        ("Started", "1m39s"),
    ]


@each_row(
    ("backend", "why"),
    [
        ("local", "here, only fields without effect have events"),
        ("kubernetes", "a cluster keeps them for an hour"),
    ],
)
def test_a_missing_event_list_is_explained(ptjob: Callable[..., Result], backend: str, why: str) -> None:
    """On this machine, the message does not blame a cluster."""
    result = ptjob(with_job(), "events", "digits", inspector=ScriptedSite(), backend=backend)

    assert result.stderr == f"no events about team/digits: {why}\n"


@each_row(
    ("backend", "labels", "text"),
    [
        ("kubernetes", {QUEUE_LABEL: "vision"}, WAITS),
        ("kubernetes", {}, "team/digits goes on"),
        ("local", {QUEUE_LABEL: "vision"}, "team/digits goes on"),  # there are no queues
    ],
)
def test_resume_does_not_say_that_a_job_in_a_queue_goes_on(
    ptjob: Callable[..., Result], backend: str, labels: dict[str, str], text: str
) -> None:
    """The message does not promise what Kueue decides."""
    scripted = with_job(**labels)

    result = ptjob(scripted, "resume", "digits", backend=backend)

    assert result.stdout == f"{text}\n"
    assert scripted.patches == [{"spec": {"runPolicy": {"suspend": False}}}]


def test_a_job_of_a_queue_is_not_suspended(ptjob: Callable[..., Result]) -> None:
    """Kueue would resume it at once, while the command reports success."""
    scripted = with_job(**{QUEUE_LABEL: "vision"})

    result = ptjob(scripted, "suspend", "digits", backend="kubernetes")

    assert (result.exit_code, result.stdout, scripted.patches) == (1, "", [])
    assert "team/digits is in the queue vision, and Kueue resumes what it has admitted" in result.stderr
    assert (
        ptjob(with_job(), "suspend", "digits").stdout == "team/digits is suspended; go on with: ptjob resume digits\n"
    )
