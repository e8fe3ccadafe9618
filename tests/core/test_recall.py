"""Tests of the table of `core/run/recall.py`, row by row: an attempt whose predecessors left nothing but their jobs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fakes import ScriptedBackend, finished
from ptjob_provider.core.diagnosis import Cause, Diagnosis
from ptjob_provider.core.errors import OutputsNotVerified, PermissionDenied
from ptjob_provider.core.identity import DIAGNOSIS_ANNOTATION, REPORT_ANNOTATION, TRY_ANNOTATION, Owner
from ptjob_provider.core.outputs.contract import OutputFacts, OutputReport, report_text
from ptjob_provider.core.run.outcome import JobOutcome, Outcome
from ptjob_provider.core.run.recall import REPORTED, AttemptResult, RecalledAttempts, recall
from ptjob_provider.core.run.submit import Submission, ensure_submitted
from ptjob_provider.core.spec import TrainingJob
from ptjob_provider.core.status import JobPhase, JobStatus
from rows import each_row

if TYPE_CHECKING:
    from ptjob_provider.core.identity import JobRef, Manifest

OWNER = Owner(instance="pipelines", ids={"pipeline_run_id": "r", "pipeline_task_name": "train"}, labels={})
JOB = TrainingJob.parse(name="digits", namespace="team", image="digits:1", model="pvc://models/m.pt")
FOR_GOOD = Diagnosis.of(Cause.OUT_OF_MEMORY, "it ran out of memory").to_text()
FOR_NOW = Diagnosis.of(Cause.EVICTED, "it was evicted").to_text()
MISSING = report_text(OutputReport(model=OutputFacts(exists=False)))
THERE = report_text(OutputReport(model=OutputFacts(exists=True, bytes=5, modified_at=4e9)))


async def submit(
    backend: ScriptedBackend, *, job: TrainingJob = JOB, owner: Owner = OWNER, is_repeated: bool = False, **seen: Any
) -> Submission:
    store = await recall(backend, "team", owner, is_repeated=is_repeated, **seen)
    return await ensure_submitted(backend, job, owner=owner, store=store)


def end(backend: ScriptedBackend, ref: JobRef, phase: str = "Failed", **notes: str) -> Manifest:
    job = backend.jobs[ref.namespace, ref.name] = finished(backend.jobs[ref.namespace, ref.name], phase)
    job["metadata"]["annotations"] |= notes
    return job


@pytest.mark.parametrize("is_repeated", [True, False])
async def test_a_try_adopts_the_job_that_still_runs(is_repeated: bool) -> None:  # noqa: FBT001 - a parameter
    """A step that was killed and restarted does not train twice."""
    backend = ScriptedBackend()
    first = await submit(backend)

    second = await submit(backend, is_repeated=is_repeated)

    assert (second.ref, second.adopted, backend.created) == (first.ref, True, 1)


async def test_jobs_of_another_installation_with_the_same_ids_are_not_recalled() -> None:
    """No label names the installation of a job, and a resumed job may be stopped."""
    backend = ScriptedBackend()
    theirs = await submit(backend, owner=replace(OWNER, instance="staging"))

    ours = await submit(backend)

    assert (ours.attempt, ours.adopted, backend.deleted) == (1, False, [])
    assert ours.ref != theirs.ref


async def test_a_try_that_may_not_list_its_kind_starts_no_second_training() -> None:
    """The other kinds may be listed, and have no job of the owner; the job of attempt 1 was deleted for attempt 2."""
    backend = ScriptedBackend()
    first = await submit(backend)
    end(backend, first.ref)
    await submit(backend)
    backend.refusals["list"] = [PermissionDenied("cannot list pytorchjobs", code=403)]

    with pytest.raises(PermissionDenied):
        await submit(backend, is_repeated=True)

    assert len(backend.jobs) == 1


@each_row(
    ("phase", "notes", "repeated", "otherwise"),
    [
        ("Succeeded", {}, 1, 1),
        ("Succeeded", {REPORT_ANNOTATION: THERE}, 1, 1),
        ("Succeeded", {REPORT_ANNOTATION: MISSING}, 1, 1),
        ("Succeeded", {REPORT_ANNOTATION: MISSING, TRY_ANNOTATION: REPORTED}, 1, 2),
        ("Failed", {}, 2, 2),
        ("Failed", {DIAGNOSIS_ANNOTATION: FOR_NOW}, 2, 2),
        ("Failed", {DIAGNOSIS_ANNOTATION: FOR_GOOD}, 1, 1),
        ("Failed", {DIAGNOSIS_ANNOTATION: FOR_GOOD, TRY_ANNOTATION: REPORTED}, 1, 2),
    ],
)
async def test_the_end_of_the_newest_job_decides_whether_training_is_repeated(
    phase: str, notes: dict[str, str], repeated: int, otherwise: int
) -> None:
    """Training is not repeated if a result exists, nor automatically where a retry cannot help."""
    for is_repeated, attempt in ((True, repeated), (False, otherwise)):
        backend = ScriptedBackend()
        first = await submit(backend)
        end(backend, first.ref, phase, **notes)

        second = await submit(backend, is_repeated=is_repeated)

        assert (second.attempt, second.adopted) == (attempt, attempt == 1), json.dumps(notes)


async def test_a_third_attempt_has_the_outputs_of_the_first() -> None:
    """What any attempt of the step has written is the step's."""
    backend, times = ScriptedBackend(), ["2026-11-20T10:00:00Z", "2026-11-20T11:00:00Z"]
    for when in times:
        ref = (await submit(backend)).ref
        end(backend, ref)["metadata"]["creationTimestamp"] = when

    assert (await submit(backend)).first_started_at == times[0]


async def test_the_newest_attempt_counts() -> None:
    backend = ScriptedBackend()
    first = await submit(backend)
    old = end(backend, first.ref)
    second = await submit(backend)
    backend.jobs[first.ref.namespace, first.ref.name] = old

    third = await submit(backend)

    assert (third.ref, third.attempt) == (second.ref, 2)


def note(submission: Submission, outcome: Outcome, cause: Cause | None = None) -> AttemptResult:
    why = Diagnosis.of(cause, "so it was") if cause else None
    conclusion = JobOutcome(outcome=outcome, status=JobStatus(phase=JobPhase.RUNNING), diagnosis=why)
    return AttemptResult.of(submission, conclusion)


@each_row("is_going", [False, True])
@each_row(
    ("outcome", "cause", "is_told"),
    [
        (Outcome.DELETED, Cause.DELETED, True),
        (Outcome.FAILED, Cause.CONFIG, True),
        (Outcome.FAILED, Cause.START_TIMEOUT, False),
        (Outcome.TIMED_OUT, Cause.TIMED_OUT, False),
        (Outcome.SUCCEEDED, None, True),
    ],
)
async def test_the_stored_result_of_a_deleted_job_is_used_by_an_automatic_retry(
    outcome: Outcome, cause: Cause | None, *, is_told: bool, is_going: bool
) -> None:
    """An automatic retry follows it; a retry by a person begins the next attempt."""
    for is_repeated in (True, False):
        backend = ScriptedBackend()
        first = await submit(backend)
        noted = note(first, outcome, cause)
        if is_going:
            backend.jobs[first.ref.namespace, first.ref.name]["metadata"]["deletionTimestamp"] = "2026-11-20T10:06:00Z"
        else:
            await backend.delete(first.ref)
        notes = ["", noted.to_text(), "[]"]

        store = await recall(backend, "team", OWNER, is_repeated=is_repeated, notes=notes)
        second = await ensure_submitted(backend, JOB, owner=OWNER, store=store)

        assert store.to_report == (noted if is_told and is_repeated else None)
        assert second.attempt == 2
        assert second.first_started_at == first.first_started_at


async def test_a_job_that_is_gone_unverified_is_trained_again_by_a_person_only() -> None:
    backend = ScriptedBackend()
    first = await submit(backend)
    notes = [note(first, Outcome.UNVERIFIED).to_text()]
    await backend.delete(first.ref)

    with pytest.raises(OutputsNotVerified, match="never verified"):
        await submit(backend, is_repeated=True, notes=notes)
    assert (await submit(backend, notes=notes)).attempt == 2


async def test_a_job_that_exists_counts_more_than_its_note() -> None:
    backend = ScriptedBackend()
    first = await submit(backend)
    notes = [note(first, Outcome.FAILED, Cause.CONFIG).to_text()]

    store = await recall(backend, "team", OWNER, is_repeated=True, notes=notes)

    assert store.to_report is None
    assert (await ensure_submitted(backend, JOB, owner=OWNER, store=store)).adopted


async def test_a_note_of_the_newest_attempt_counts_although_an_older_job_is_still_there() -> None:
    """If that failure was not worth a retry, the failure of the attempt before it does not cause one."""
    backend = ScriptedBackend()
    first = await submit(backend)
    old = end(backend, first.ref)
    second = await submit(backend)
    await backend.delete(second.ref)
    backend.jobs[first.ref.namespace, first.ref.name] = old
    noted = note(second, Outcome.FAILED, Cause.CONFIG)

    store = await recall(backend, "team", OWNER, is_repeated=True, notes=[noted.to_text()])

    assert store.to_report == noted


async def test_a_note_does_not_hold_for_a_later_job_that_is_being_deleted() -> None:
    """It belongs to one job, whatever happens to the next one."""
    backend = ScriptedBackend()
    first = await submit(backend)
    end(backend, first.ref)
    second = await submit(backend)
    backend.jobs["team", second.ref.name]["metadata"]["deletionTimestamp"] = "2026-11-20T10:06:00Z"

    noted = note(first, Outcome.FAILED, Cause.CONFIG).to_text()
    store = await recall(backend, "team", OWNER, is_repeated=True, notes=[noted])

    assert store.to_report is None


def replica_of(job: Manifest, hour: int = 10) -> Manifest:
    """Return a replica of the job, created at this hour."""
    meta = job["metadata"]
    owner = {"apiVersion": "kubeflow.org/v1", "kind": job["kind"], "name": meta["name"], "uid": meta["uid"]}
    at = {"creationTimestamp": f"2026-11-20T{hour}:00:00Z"}
    return {"metadata": {"namespace": "team", "labels": meta["labels"], "ownerReferences": [owner], **at}}


async def test_replicas_of_a_job_that_is_gone_are_waited_for() -> None:
    """A new job of the same name would inherit their state; the next attempt has another name.

    It goes on from the checkpoints that were written since the oldest of them was created.
    """
    backend = ScriptedBackend()
    first = await submit(backend)
    gone = backend.jobs.pop((first.ref.namespace, first.ref.name))
    replicas, other = [replica_of(gone, hour) for hour in (11, 10, 12)], replica_of(gone, 13)
    other["metadata"]["ownerReferences"] = []
    backend.pods_stay = 3

    job = replace(JOB, checkpoints="pvc://models/checkpoints")
    second = await submit(backend, job=job, replicas=[other, *replicas])

    assert (second.attempt, backend.deleted, backend.pods_stay) == (2, [], -1)
    assert second.ref.name != first.ref.name
    assert [since.isoformat() for _, _, since in backend.looks] == ["2026-11-20T10:00:00+00:00"]


@pytest.mark.parametrize("source", ["notes", "replicas"])
async def test_the_kind_of_an_earlier_tries_job_has_to_be_listed(source: str) -> None:
    """The step has another kind since; a note, or a replica that still runs, shows the earlier one."""
    backend = ScriptedBackend()
    backend.refusals["list PyTorchJob"] = [PermissionDenied("cannot list pytorchjobs", code=403)] * 2
    first = await ensure_submitted(backend, JOB, owner=OWNER, store=RecalledAttempts(None))
    replica = replica_of(backend.jobs[first.ref.namespace, first.ref.name])
    seen: dict[str, Any] = {"notes": [note(first, Outcome.FAILED).to_text()], "replicas": [replica]}

    with pytest.raises(PermissionDenied):
        await recall(backend, "team", OWNER, is_repeated=True, own_kinds=["TrainJob"], **{source: seen[source]})
    assert (await recall(backend, "team", OWNER, is_repeated=True, own_kinds=["TrainJob"])).load() is None
