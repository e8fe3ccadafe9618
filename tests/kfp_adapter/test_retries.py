"""Tests of the job result that a step records for retries, and of the report of an earlier try by a retry."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fakes import ScriptedBackend, finished
from kfp_adapter.pod_stand_in import pod
from kfp_adapter.tries import Try
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.diagnosis import Cause, Diagnosis
from ptjob_provider.core.errors import PermissionDenied
from ptjob_provider.core.identity import DIAGNOSIS_ANNOTATION, TRY_ANNOTATION
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.run.recall import REPORTED
from rows import each_row

if TYPE_CHECKING:
    from ptjob_provider.core.identity import JobRef, Manifest
    from ptjob_provider.core.run.outcome import JobOutcome


class TellingStandIn(ScriptedBackend):
    """Creates a job that has already succeeded, failed or been deleted when it is first watched."""

    def __init__(self, fate: str) -> None:
        super().__init__()
        self.fate = fate

    async def submit(self, manifest: Manifest) -> JobRef:
        """Create the job and apply its fate."""
        ref = await super().submit(manifest)
        key = (ref.namespace, ref.name)
        if self.fate == "succeeds":
            self.jobs[key] = finished(self.jobs[key])
        elif self.fate == "fails for good":
            self.jobs[key] = failed(self.jobs[key])
        self.worlds, self.shown = [Observation(job=None if self.fate == "is deleted" else self.jobs[key])], 0
        return ref


def failed(job: Manifest) -> Manifest:
    """Return a failed job that a retry would not help."""
    found = finished(job)
    found["status"]["conditions"] = [{"type": "Failed", "status": "True", "lastTransitionTime": "2026-11-20T10:05:00Z"}]
    why = Diagnosis.of(Cause.OUT_OF_MEMORY, "it ran out of memory").to_text()
    annotations = {**found["metadata"]["annotations"], DIAGNOSIS_ANNOTATION: why}
    return {**found, "metadata": {**found["metadata"], "annotations": annotations}}


def ended(trying: Try) -> tuple[JobRef, JobOutcome]:
    """Run a try to its end."""
    _, ref, conclusion = asyncio.run(trying.training.until_end())
    return ref, conclusion


def test_a_job_that_a_person_deleted_is_not_made_again_by_itself() -> None:
    backend, noted = TellingStandIn("is deleted"), dict[str, list[str]]()
    first, second = (Try(backend=backend, pod=pod(f"uid-{each}", noted=noted), retry=each) for each in (0, 1))
    _, seen = ended(first)
    backend.jobs.clear()

    ref, found = ended(second)

    assert (seen.outcome, found.outcome) == (Outcome.DELETED, Outcome.DELETED)
    assert backend.created == 1
    assert f"{ref} is gone, and is not made again" in second.output.getvalue()


@each_row(("retry", "number", "notes"), [(None, None, False), (0, None, True), (None, 0, True)])
def test_a_try_notes_its_end_only_for_retries(retry: int | None, number: int | None, *, notes: bool) -> None:
    """Only a retry reads the note; a missing permission to write it does not fail the step."""
    refused = pod("uid-0", refuses=PermissionDenied("cannot patch pods"), number=number)
    trying = Try(backend=TellingStandIn("succeeds"), pod=refused, retry=retry)

    _, seen = ended(trying)

    assert seen.outcome is Outcome.SUCCEEDED
    assert ("could not be recorded for a next try: cannot patch pods" in trying.output.getvalue()) is notes


def test_a_failure_that_no_try_has_reported_is_reported_by_the_next_one() -> None:
    """The first pod was lost, and the engine started the step again in a new pod with the same name and number."""
    backend = TellingStandIn("fails for good")
    first, second = (Try(backend=backend, pod=pod(f"uid-{each}", number=0)) for each in range(2))
    lost = asyncio.run(first.submit_next())

    ref, conclusion = ended(second)

    assert (ref, conclusion.outcome, backend.created) == (lost.ref, Outcome.FAILED, 1)
    assert backend.patches[-1] == {"metadata": {"annotations": {TRY_ANNOTATION: REPORTED}}}
