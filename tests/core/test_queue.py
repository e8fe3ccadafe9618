"""What Kueue's Workload says of a job's waiting, and where it is repeated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ends import NOW
from pods import look
from ptjob_provider.core.diagnosis import Limits, ending, waiting_reason
from ptjob_provider.core.kinds.queue import as_event, owner_of
from ptjob_provider.core.recorder import Record, from_text, to_text
from ptjob_provider.core.status import JobPhase, JobStatus

SUSPENDED = JobStatus(phase=JobPhase.SUSPENDED)
WHY = "couldn't assign flavors to pod set master: insufficient unused quota for cpu in flavor default, 600m more needed"


def workload(*conditions: tuple[str, str, str], **meta: Any) -> dict[str, Any]:
    """Return a Workload as Kueue 0.12 has it."""
    told = [{"type": kind, "status": status, "reason": "R", "message": text} for kind, status, text in conditions]
    found = {"name": "pytorchjob-digits-1", "namespace": "team", "uid": "w-1", **meta}
    return {"metadata": found, "status": {"conditions": told}}


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ([("QuotaReserved", "False", WHY)], WHY),
        ([("QuotaReserved", "True", "reserved"), ("Admitted", "False", "waits for checks")], "waits for checks"),
        ([("QuotaReserved", "False", WHY), ("Evicted", "True", "preempted")], "preempted"),
        ([("QuotaReserved", "True", "reserved"), ("Evicted", "False", "not")], None),
        ([("QuotaReserved", "False", "")], None),
        ([], None),
    ],
)
def test_the_condition_that_keeps_it_waiting_is_told(conditions: list[Any], message: str | None) -> None:
    """In the words of an event about the Workload."""
    found = as_event(workload(*conditions))

    assert (found or {}).get("message") == message
    if found is not None:
        assert found["involvedObject"]["kind"] == "Workload"
        assert found["metadata"]["uid"] == "w-1"


def test_a_workload_that_says_nothing_yet_is_no_event() -> None:
    """It was made a moment ago."""
    assert as_event({"metadata": {"name": "w", "namespace": "team", "uid": "w-1"}}) is None


def test_a_workload_says_whose_it_is() -> None:
    """By its label, else by its controller."""
    owners = [{"uid": "other"}, {"uid": "j-2", "controller": True}]

    assert owner_of(workload(labels={"kueue.x-k8s.io/job-uid": "j-1"}, ownerReferences=owners)) == "j-1"
    assert owner_of(workload(ownerReferences=owners)) == "j-2"
    assert owner_of(workload()) == ""


def test_why_a_suspended_job_waits_is_what_its_queue_says() -> None:
    """As long as it is suspended; a queue that falls silent has said it; a story on the job keeps it."""
    event = as_event(workload(("QuotaReserved", "False", WHY)))
    assert event is not None

    record = look(look(Record(), events=[event]))

    assert waiting_reason(record, SUSPENDED, replicas=1) == f"suspended by its queue: {WHY}"
    assert waiting_reason(Record(), SUSPENDED, replicas=1) == (
        "suspended: it waits for its queue, or for a person, to resume it"
    )
    assert "queue" not in waiting_reason(record, replace(SUSPENDED, phase=JobPhase.PENDING), replicas=1)
    assert from_text(to_text(record)).queue == WHY


def test_a_limit_on_waiting_repeats_it() -> None:
    """Whoever reads the failure sees what the queue lacked."""
    record = Record(queued_since=NOW, queue=WHY)

    found = ending(record, SUSPENDED, now=NOW.replace(hour=12), limits=Limits(queue_timeout=10), ranks={})

    assert found is not None
    assert found.summary == f"it was still suspended after 10 s; its queue says: {WHY}"
