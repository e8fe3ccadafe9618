"""Every error that leaves the core. Two questions shape the tree: whose fault is it, and would a retry help?

PTJobError
├─ InvalidSpec (also ValueError)      the request is wrong: never retry
│  └─ NotThere                        a claim that it names, or a folder of one, is not there
├─ JobFailed                          the training failed: retry when its diagnosis says so
│  ├─ JobTimedOut                     our deadline passed and the job was stopped
│  └─ JobDeleted                      somebody deleted the job while we waited
├─ OutputsNotVerified                 the job succeeded, its outputs could not be looked at: retry verifies again
├─ ClusterError                       the API server (or this machine) said no
│  ├─ JobNotFound
│  ├─ JobAlreadyExists
│  ├─ PermissionDenied
│  └─ ClusterUnavailable              a retry helps
├─ LedgerUnavailable                  the ledger of batches, or who knows of its runs, did not answer: a retry helps
├─ ClaimLost                          the batches of this training are another run's by now: never retry
└─ UnsupportedByBackend               the back-end cannot do what the job asks for: never retry
   └─ KindNotServed                   it does not know the kind of job at all
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ptjob_provider.core.diagnosis import Diagnosis
    from ptjob_provider.core.identity import JobRef
    from ptjob_provider.core.status import JobStatus


class PTJobError(Exception):
    """Any failure that this package names."""

    retryable: bool = False
    """Whether trying the same thing again may help."""

    cause: str = "error"
    """A stable word for programs; of a job that failed it is its diagnosis's."""


class InvalidSpec(PTJobError, ValueError):
    """The request names something that cannot be: nothing was started.

    The text names the field, the value that was given and what is allowed.
    """

    cause = "invalid_spec"

    @classmethod
    def of(cls, field: str, value: object, allowed: str) -> InvalidSpec:
        """Build the error for one field."""
        return cls(f"{field}: {_short(value)} is not allowed; {allowed}")


class NotThere(InvalidSpec):
    """A claim that the request names, or a folder of one, is not there."""

    @classmethod
    def claim(cls, claim: str, namespace: str, *, where: str = "") -> NotThere:
        """Build the error for a claim; `where` is what was looked at."""
        looked = f" ({where})" if where else ""
        return cls(f"claim: {claim!r} is not there{looked}; name a claim of namespace {namespace}: ptjob data list")


class UnsupportedByBackend(PTJobError):
    """The back-end would have to ignore a part of the job; it refuses instead, before anything starts."""

    cause = "unsupported"

    @classmethod
    def of(cls, field: str, why: str) -> UnsupportedByBackend:
        """Build the error for one field of the manifest."""
        return cls(f"{field}: {why}")


class KindNotServed(UnsupportedByBackend):
    """The back-end knows no jobs of that kind; nothing was created."""


class JobFailed(PTJobError):
    """The training ended without success.

    The first line says which replica failed, why, and what to do next; the replica's last log lines follow.
    """

    def __init__(self, ref: JobRef, status: JobStatus, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis.report(ref))
        self.ref = ref
        self.status = status
        self.diagnosis = diagnosis
        self.retryable = diagnosis.retryable
        self.cause = diagnosis.cause.value


class JobTimedOut(JobFailed):
    """The job was still unfinished at our deadline and has been stopped."""


class JobDeleted(JobFailed):
    """Somebody deleted the job while it was waited for; what it achieved is unknown."""


class OutputsNotVerified(PTJobError):
    """The job succeeded but nobody could look at its outputs; a retry adopts the finished job and only verifies."""

    cause = "outputs_not_verified"

    retryable = True


class ClusterError(PTJobError):
    """The API server refused or failed a request.

    Attributes:
        code: the HTTP status, 0 where there was none.
        reason: the server's own word for it, such as `AlreadyExists`.
        retry_after: seconds that the server asked to be left alone; None if it did not.
    """

    cause = "cluster_error"

    def __init__(self, message: str, *, code: int = 0, reason: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.retry_after = retry_after


class JobNotFound(ClusterError):
    """No job has that name, or the one that has it is not the one that was asked for (its uid differs)."""


class JobAlreadyExists(ClusterError):
    """The name is taken by another object; nothing was created."""


class PermissionDenied(ClusterError):
    """The credentials may not do that; the text names the verb and the resource."""

    cause = "permission_denied"


class ClusterUnavailable(ClusterError):
    """The back-end did not answer in time, or said that it is overloaded."""

    cause = "cluster_unavailable"

    retryable = True


class LedgerUnavailable(PTJobError):
    """The ledger's database did not answer, or nobody could say how the runs stand that claimed from it."""

    cause = "ledger_unavailable"

    retryable = True


class ClaimLost(PTJobError):
    """A run is about to train on batches that are not its own: another run has claimed them, or nobody has."""

    cause = "claim_lost"


def _short(value: object, limit: int = 120) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def one_of(words: Iterable[object]) -> str:
    """Say what is allowed, in the words of an error text: `allowed: A, B`."""
    return "allowed: " + ", ".join(str(word) for word in words)
