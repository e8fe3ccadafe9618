"""What the retries of a step do about jobs that are gone by then: deleted by a person, by the step, or as was asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fakes import ScriptedBackend, finished
from kfp_adapter.pod_stand_in import pod
from kfp_adapter.tries import IDS, Try
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.diagnosis import Cause, Diagnosis
from ptjob_provider.core.errors import PermissionDenied
from ptjob_provider.core.identity import DIAGNOSIS_ANNOTATION, TRY_ANNOTATION, attempt_of
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.run.resume import REPORTED
from rows import each_row

if TYPE_CHECKING:
    from ptjob_provider.core.identity import JobRef, Manifest
    from ptjob_provider.core.run.outcome import JobOutcome


class TellingStandIn(ScriptedBackend):
    """Shows a job as it is, and ended or gone as soon as it was created."""

    def __init__(self, fate: str) -> None:
        super().__init__()
        self.fate = fate

    async def submit(self, manifest: Manifest) -> JobRef:
        """Create the job, and have its fate come."""
        ref = await super().submit(manifest)
        key = (ref.namespace, ref.name)
        if self.fate == "succeeds":
            self.jobs[key] = finished(self.jobs[key])
        elif self.fate == "fails for good":
            self.jobs[key] = failed(self.jobs[key])
        self.worlds, self.shown = [Observation(job=None if self.fate == "is deleted" else self.jobs[key])], 0
        return ref


def failed(job: Manifest) -> Manifest:
    """Return a job that another attempt would not help."""
    found = finished(job)
    found["status"]["conditions"] = [{"type": "Failed", "status": "True", "lastTransitionTime": "2026-11-20T10:05:00Z"}]
    why = Diagnosis.of(Cause.OUT_OF_MEMORY, "it ran out of memory").to_text()
    annotations = {**found["metadata"]["annotations"], DIAGNOSIS_ANNOTATION: why}
    return {**found, "metadata": {**found["metadata"], "annotations": annotations}}


def tries(backend: ScriptedBackend, **fields: Any) -> list[Try]:
    """Return a step's first try and the engine's first retry of it."""
    noted: dict[str, list[str]] = {}
    return [
        Try(backend=backend, pod=pod(f"uid-{retry}", noted=noted), retry=retry, fields={**IDS, **fields})
        for retry in (0, 1)
    ]


def ended(trying: Try) -> tuple[JobRef, JobOutcome]:
    """Let a try come to its end."""
    return asyncio.run(trying.training.until_end())


def test_a_job_that_a_person_deleted_is_not_made_again_by_itself() -> None:
    """As the first try has said."""
    first, second = tries(TellingStandIn("is deleted"))
    _, seen = ended(first)
    first.backend.jobs.clear()

    ref, told = ended(second)

    assert (seen.outcome, told.outcome) == (Outcome.DELETED, Outcome.DELETED)
    assert first.backend.created == 1
    assert f"{ref} is gone, and is not made again" in second.said.getvalue()


def test_a_job_that_the_step_stopped_is_followed_by_the_next_attempt() -> None:
    """The training is told which one it is, and the first one's time is not forgotten."""
    first, second = tries(TellingStandIn("runs"), timeout="0.01")
    _, seen = ended(first)
    assert (seen.outcome, first.backend.jobs) == (Outcome.TIMED_OUT, {})

    submission = asyncio.run(second.submit_next())

    assert submission.attempt == 2
    assert [attempt_of(job) for job in second.backend.jobs.values()] == [2]


def test_a_result_whose_job_was_deleted_is_handed_on_by_a_retry() -> None:
    """The launcher may fail to bring the outputs to their store after the step has done everything."""
    first, second = tries(TellingStandIn("succeeds"))
    ref, seen = ended(first)
    first.backend.jobs.clear()

    assert ended(second) == (ref, seen)
    assert first.backend.created == 1


@each_row(("retry", "number", "notes"), [(None, None, False), (0, None, True), (None, 0, True)])
def test_a_try_notes_its_end_only_for_retries(retry: int | None, number: int | None, *, notes: bool) -> None:
    """Nobody else would read it, nor does a pod without the right to it fail."""
    refused = pod("uid-0", refuses=PermissionDenied("cannot patch pods"), number=number)
    trying = Try(backend=TellingStandIn("succeeds"), pod=refused, retry=retry)

    _, seen = ended(trying)

    assert seen.outcome is Outcome.SUCCEEDED
    assert ("could not be recorded for a next try: cannot patch pods" in trying.said.getvalue()) is notes


def test_a_step_that_argo_repeats_unasked_trains_nothing_again() -> None:
    """It was set up to repeat steps whose author has asked for no retries; only the pod knows that this is one."""
    noted: dict[str, list[str]] = {}
    backend = TellingStandIn("is deleted")
    first, second = (
        Try(backend=backend, pod=pod(f"uid-{number}", noted=noted, number=number), fields=IDS) for number in (0, 1)
    )
    ref, _ = ended(first)
    backend.jobs.clear()

    told, conclusion = ended(second)

    assert (told, conclusion.outcome, backend.created) == (ref, Outcome.DELETED, 1)


def test_a_failure_that_no_try_has_told_is_told_by_the_next_one() -> None:
    """The first one's pod was lost, and the engine has started the step in a new pod of its name, with its number."""
    backend = TellingStandIn("fails for good")
    first, second = (Try(backend=backend, pod=pod(f"uid-{each}", number=0), fields=IDS) for each in range(2))
    lost = asyncio.run(first.submit_next())

    ref, conclusion = ended(second)

    assert (ref, conclusion.outcome, backend.created) == (lost.ref, Outcome.FAILED, 1)
    assert backend.patches[-1] == {"metadata": {"annotations": {TRY_ANNOTATION: REPORTED}}}
