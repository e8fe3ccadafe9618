"""The table of `core/recall.py`, row by row: what a try does whose predecessors left nothing but their jobs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from fakes import ScriptedBackend, finished
from ptjob_provider.core.diagnosis import Cause, Diagnosis
from ptjob_provider.core.identity import DIAGNOSIS_ANNOTATION, REPORT_ANNOTATION, Owner
from ptjob_provider.core.outputs import OutputFacts, OutputReport, report_text
from ptjob_provider.core.recall import recall
from ptjob_provider.core.spec import TrainingJob
from ptjob_provider.core.submission import Submission, ensure_submitted

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest

OWNER = Owner(instance="pipelines", ids={"pipeline_run_id": "r", "pipeline_task_name": "train"}, labels={})
OTHER = Owner(instance="pipelines", ids={"pipeline_run_id": "r", "pipeline_task_name": "train-2"}, labels={})
JOB = TrainingJob.parse(name="digits", namespace="team", image="digits:1", model="pvc://models/m.pt")
FOR_GOOD = Diagnosis.of(Cause.PYTHON_EXCEPTION, "it raised").to_text()
FOR_NOW = Diagnosis.of(Cause.EVICTED, "it was evicted").to_text()
MISSING = report_text(OutputReport(model=OutputFacts(exists=False)))
THERE = report_text(OutputReport(model=OutputFacts(exists=True, bytes=5, modified_at=4e9)))


async def no_wait(_: float) -> None:
    return


async def submit(backend: ScriptedBackend, *, owner: Owner = OWNER, is_repeated: bool = False) -> Submission:
    store = await recall(backend, "team", owner, is_repeated=is_repeated)
    return await ensure_submitted(backend, JOB, owner=owner, store=store, sleep=no_wait)


def ended(job: Manifest, phase: str, notes: dict[str, str]) -> dict[str, Any]:
    job = finished(job)
    job["status"]["conditions"] = [{"type": phase, "status": "True", "lastTransitionTime": "2026-11-20T10:05:00Z"}]
    job["metadata"]["annotations"] |= notes
    return job


async def test_the_first_try_starts_attempt_one() -> None:
    """Where the owner has no job there is nothing to recall."""
    backend = ScriptedBackend()

    assert (await submit(backend)).attempt == 1


@pytest.mark.parametrize("is_repeated", [True, False])
async def test_a_try_adopts_the_job_that_still_runs(is_repeated: bool) -> None:  # noqa: FBT001 - a parameter
    """A step that was killed and started again does not train twice."""
    backend = ScriptedBackend()
    first = await submit(backend)

    second = await submit(backend, is_repeated=is_repeated)

    assert (second.ref, second.adopted, backend.created) == (first.ref, True, 1)


async def test_jobs_of_others_are_not_recalled() -> None:
    """Two steps of one run have a job each."""
    backend = ScriptedBackend()
    first = await submit(backend)

    assert (await submit(backend, owner=OTHER)).ref != first.ref


@pytest.mark.parametrize(
    ("phase", "notes", "repeated", "otherwise"),
    [
        ("Succeeded", {}, 1, 1),
        ("Succeeded", {REPORT_ANNOTATION: THERE}, 1, 1),
        ("Succeeded", {REPORT_ANNOTATION: MISSING}, 1, 2),
        ("Failed", {}, 2, 2),
        ("Failed", {DIAGNOSIS_ANNOTATION: FOR_NOW}, 2, 2),
        ("Failed", {DIAGNOSIS_ANNOTATION: FOR_GOOD}, 1, 2),
    ],
)
async def test_what_became_of_the_newest_job_decides(
    phase: str, notes: dict[str, str], repeated: int, otherwise: int
) -> None:
    """Nothing is trained again for a result that is there, nor by itself where that cannot help."""
    for is_repeated, attempt in ((True, repeated), (False, otherwise)):
        backend = ScriptedBackend()
        first = await submit(backend)
        key = (first.ref.namespace, first.ref.name)
        backend.jobs[key] = ended(backend.jobs[key], phase, notes)

        second = await submit(backend, is_repeated=is_repeated)

        assert (second.attempt, second.adopted) == (attempt, attempt == 1), json.dumps(notes)


async def test_the_newest_attempt_counts() -> None:
    """An older job that is still there decides nothing."""
    backend = ScriptedBackend()
    first = await submit(backend)
    old = backend.jobs[first.ref.namespace, first.ref.name]
    backend.jobs[first.ref.namespace, first.ref.name] = ended(old, "Failed", {})
    second = await submit(backend)
    backend.jobs[first.ref.namespace, first.ref.name] = ended(old, "Failed", {})

    third = await submit(backend)

    assert (third.ref, third.attempt) == (second.ref, 2)
