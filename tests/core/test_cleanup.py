"""Tests of the job that an ending try may stop: its own by owner and uid, and no other job of the name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes import MemoryStore, ScriptedBackend, finished
from ptjob_provider.core.errors import (
    ClusterUnavailable,
    InvalidSpec,
    PermissionDenied,
    PTJobError,
    UnsupportedByBackend,
)
from ptjob_provider.core.identity import JobRef, Owner
from ptjob_provider.core.run.attempts import AttemptRecord
from ptjob_provider.core.run.cleanup import act_on_finished, delete_if_unfinished, known_job, leave_running
from ptjob_provider.core.run.submit import ensure_submitted
from ptjob_provider.core.spec import TrainingJob
from ptjob_provider.core.spec.on_finish import OnFinishAction

pytestmark = pytest.mark.skips_waits

OWNER = Owner(instance="prod", ids={"dag_id": "d", "task_id": "t", "run_id": "r"}, labels={})
STRANGER = Owner(instance="staging", ids=OWNER.ids, labels={})
JOB = TrainingJob.parse(name="digits", namespace="team", image="digits:1")
INTENT = AttemptRecord(attempt=1, name="digits", namespace="team")


async def job_of(backend: ScriptedBackend, owner: Owner) -> JobRef:
    submission = await ensure_submitted(backend, JOB, owner=owner, store=MemoryStore(), exact_name=True)
    return submission.ref


@pytest.mark.parametrize(
    ("owner", "uid", "is_known"),
    [(OWNER, None, True), (STRANGER, None, False), (OWNER, "uid-9", False)],
    ids=["its create was under way", "the name was taken", "it is gone, and another task waits for this one"],
)
async def test_the_recorded_job_is_known_by_its_owner_and_its_uid(
    owner: Owner, uid: str | None, *, is_known: bool
) -> None:
    """A stored attempt has a name and, until its create has been answered, no uid."""
    backend = ScriptedBackend()
    ref = await job_of(backend, owner)

    assert await known_job(backend, OWNER, MemoryStore(replace(INTENT, uid=uid))) == (ref if is_known else None)


@pytest.mark.parametrize("record", [None, replace(INTENT, ended=True)])
async def test_an_attempt_that_has_ended_has_no_job_to_stop(record: AttemptRecord | None) -> None:
    backend = ScriptedBackend()
    await job_of(backend, OWNER)

    assert await known_job(backend, OWNER, MemoryStore(record)) is None


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (PermissionDenied("cannot create pytorchjobs"), ""),
        (InvalidSpec("no such field"), ""),
        (UnsupportedByBackend("not here"), ""),
        ("lost", "may still run"),
        (ClusterUnavailable("no answer"), "may still run"),
    ],
)
async def test_only_a_job_that_may_have_been_created_is_said_to_run(answer: Exception | str, said: str) -> None:
    """A final answer to the create request means that there is no job, also where jobs may not be read."""
    backend, store = ScriptedBackend(), MemoryStore()
    backend.submits = [answer]
    backend.get_error = PermissionDenied("cannot get pytorchjobs")
    with pytest.raises(PTJobError):
        await ensure_submitted(backend, JOB, owner=OWNER, store=store, api_error_timeout=0.0)

    message = await leave_running(backend, OWNER, store)

    assert said in message
    assert bool(message) is bool(said)


async def test_a_job_that_has_the_name_now_is_neither_stopped_nor_cleaned_up() -> None:
    """A reference means one uid; a later job of the name belongs to another task or attempt."""
    backend = ScriptedBackend()
    ref = replace(await job_of(backend, OWNER), uid="uid-before")

    assert not await delete_if_unfinished(backend, ref)
    backend.jobs["team", "digits"] = finished(backend.jobs["team", "digits"])
    assert not await act_on_finished(backend, ref, OnFinishAction.KEEP_JOB, succeeded=True)
    await act_on_finished(backend, ref, OnFinishAction.DELETE_JOB, succeeded=True)

    assert backend.jobs
    assert backend.deleted == [ref]  # of that uid, which is gone
    assert not backend.patches
