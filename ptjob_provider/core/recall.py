"""What is known of a task's earlier attempts from its jobs alone, where nothing of the task outlives its process.

The newest job that its owner has in the namespace decides what a try does (each row has a test):

    the newest job                              a repeated try         any other try
    -----------------------------------------   --------------------   --------------------
    has not ended                               adopts it              adopts it
    succeeded, outputs in place or not known    verifies them          verifies them
    failed, and a retry may help                the next attempt       the next attempt
    failed, and a retry cannot help             tells it once more     the next attempt
    succeeded, its outputs found wanting        tells it once more     the next attempt

A repeated try is one that the orchestrator made by itself; any other was asked for by a person, who may have corrected
something.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptjob_provider.core.attempts import AttemptRecord
from ptjob_provider.core.diagnosis import Diagnosis
from ptjob_provider.core.identity import MANAGED_LABEL, REPORT_ANNOTATION, JobRef, attempt_of, is_owned_by, label_value
from ptjob_provider.core.kinds import pytorchjob
from ptjob_provider.core.outputs import problems, read_report
from ptjob_provider.core.status import JobPhase, parse_instant
from ptjob_provider.core.submission import Submission

if TYPE_CHECKING:
    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.identity import Manifest, Owner


class RecalledAttempts:
    """An `AttemptStore` that begins with what the jobs tell and lasts as long as this process."""

    def __init__(self, record: AttemptRecord | None) -> None:
        self._record = record

    def load(self) -> AttemptRecord | None:
        """Return what was recalled, or saved since."""
        return self._record

    def save(self, record: AttemptRecord) -> None:
        """Keep the record until this process ends; the next one recalls it from the job."""
        self._record = record


async def recall(backend: Backend, namespace: str, owner: Owner, *, is_repeated: bool) -> RecalledAttempts:
    """Look for the owner's jobs and return what they tell.

    Args:
        backend: where the jobs are.
        namespace: in which they would be.
        owner: whose they are.
        is_repeated: whether nobody asked for this try.

    Raises:
        ClusterError: the jobs cannot be listed.
    """
    labels = {MANAGED_LABEL: "true", **{name: label_value(value) for name, value in owner.ids.items()}}
    ours = [job for job in await backend.list(pytorchjob.KIND, namespace, labels) if is_owned_by(job, owner)]
    newest = max(ours, key=attempt_of, default=None)
    return RecalledAttempts(_record(newest, is_repeated=is_repeated) if newest else None)


def _record(job: Manifest, *, is_repeated: bool) -> AttemptRecord:
    ref = JobRef.of(job)
    return AttemptRecord(
        attempt=attempt_of(job),
        name=ref.name,
        namespace=ref.namespace,
        uid=ref.uid,
        ended=_is_settled(job) and (not is_repeated or _retry_may_help(job)),
        first_started_at=job["metadata"]["creationTimestamp"],
    )


def _is_settled(job: Manifest) -> bool:
    """Whether nothing good can come of this job any more."""
    phase = pytorchjob.read_status(job).phase
    return phase is JobPhase.FAILED or (phase is JobPhase.SUCCEEDED and _is_wanting(job))


def _retry_may_help(job: Manifest) -> bool:
    noted = Diagnosis.stored_in(job)
    return pytorchjob.read_status(job).phase is JobPhase.FAILED and (noted is None or noted.retryable)


def _is_wanting(job: Manifest) -> bool:
    """Whether somebody has looked at the job's outputs and found that they do not count."""
    report = read_report((job["metadata"].get("annotations") or {}).get(REPORT_ANNOTATION, ""))
    submission = Submission.of(job)
    not_before = parse_instant(submission.first_started_at)
    return bool(report and not_before and problems(report, submission.outputs, not_before=not_before))
