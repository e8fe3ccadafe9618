"""Every error that leaves the core, classified by whose fault it is and whether a retry helps.

PTJobError
├─ InvalidSpec (also ValueError)      the request is wrong: never retry
│  └─ NotThere                        a claim or folder that it names does not exist
├─ JobFailed                          the training failed: retry when its diagnosis says so
│  ├─ JobTimedOut                     our deadline passed and the job was stopped
│  └─ JobDeleted                      the job was deleted while it was followed
├─ OutputsNotVerified                 the job succeeded, its outputs could not be inspected: retry verifies again
├─ ClusterError                       the API server (or this machine) refused
│  ├─ JobNotFound
│  ├─ JobAlreadyExists
│  ├─ PermissionDenied
│  └─ ClusterUnavailable              a retry helps
├─ LedgerUnavailable                  the ledger, or the source of its runs' states, did not answer: a retry helps
├─ ClaimLost                          another run has reserved this training's batches: never retry
└─ UnsupportedByBackend               the back-end does not support the request: never retry
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
    """Base class of the errors of this package."""

    retryable: bool = False
    """True if retrying the same action may help."""

    cause: str = "error"
    """Stable code for programs; for a failed job, the cause of its diagnosis."""


class InvalidSpec(PTJobError, ValueError):
    """The request is invalid: nothing was started.

    The text names the field, its value and what is allowed.
    """

    cause = "invalid_spec"

    @classmethod
    def of(cls, field: str, value: object, allowed: str) -> InvalidSpec:
        """Build the error for one field."""
        return cls(f"{field}: {_short(value)} is not allowed; {allowed}")


class NotThere(InvalidSpec):
    """A claim that the request names, or a folder on it, does not exist."""

    @classmethod
    def claim(cls, claim: str, namespace: str, *, where: str = "") -> NotThere:
        """Build the error for a claim; `where` is the inspected location."""
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
    """The back-end does not serve that kind of job; nothing was created."""


class JobFailed(PTJobError):
    """The training ended without success.

    The first line says which replica failed, why, and what to do next; the replica's last log lines follow. The status
    of a job that was given up and left in place is not terminal.
    """

    def __init__(self, ref: JobRef, status: JobStatus, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis.report(ref, has_ended=status.phase.is_terminal))
        self.ref = ref
        self.status = status
        self.diagnosis = diagnosis
        self.retryable = diagnosis.retryable
        self.cause = diagnosis.cause.value


class JobTimedOut(JobFailed):
    """The job was still unfinished at our deadline and has been stopped."""


class JobDeleted(JobFailed):
    """The job was deleted by another client while it was followed; its progress is unknown."""


class OutputsNotVerified(PTJobError):
    """The job succeeded but its outputs could not be inspected; a retry adopts the finished job and only verifies."""

    cause = "outputs_not_verified"

    retryable = True


class ClusterError(PTJobError):
    """The API server rejected a request, or failed to serve it.

    Attributes:
        code: the HTTP status; 0 for none.
        reason: the server's reason, such as `AlreadyExists`.
        retry_after: the server's Retry-After in seconds; None if not sent.
    """

    cause = "cluster_error"

    def __init__(self, message: str, *, code: int = 0, reason: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.retry_after = retry_after


class JobNotFound(ClusterError):
    """No job has that name, or its uid differs from the requested one."""


class JobAlreadyExists(ClusterError):
    """The name is taken by another object; nothing was created."""


class PermissionDenied(ClusterError):
    """The credentials may not do that; the text names the verb and the resource."""

    cause = "permission_denied"


class ClusterUnavailable(ClusterError):
    """The back-end did not answer in time, or reported that it is overloaded."""

    cause = "cluster_unavailable"

    retryable = True


class LedgerUnavailable(PTJobError):
    """The ledger's database did not answer, or the states of the runs that reserved batches are unavailable."""

    cause = "ledger_unavailable"

    retryable = True


class ClaimLost(PTJobError):
    """A run is about to train on batches that it has not reserved."""

    cause = "claim_lost"


def _short(value: object, limit: int = 120) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def one_of(words: Iterable[object], given: object = "") -> str:
    """Return the allowed values for an error text: `allowed: A, B`, and the one that is closest to a given value."""
    texts = [str(word) for word in words]
    close = nearest(given, texts)
    return "allowed: " + ", ".join(texts) + (f"; did you mean {close}?" if close else "")


def nearest(given: object, words: Iterable[str]) -> str:
    """Return the word that is closest to a given one, in any case of letters; "" if none is close."""
    import difflib  # noqa: PLC0415 - only for a mistake

    by_lower = {word.lower(): word for word in words}
    close = difflib.get_close_matches(str(given).lower(), by_lower, n=1)
    return by_lower[close[0]] if close else ""
