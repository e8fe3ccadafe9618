"""Define the errors that the core raises, by cause, and whether a retry helps.

PTJobError
├─ InvalidSpec (also ValueError)      the request is wrong: never retry
│  └─ NotThere                        a claim or folder that the request names does not exist
├─ JobFailed                          the training failed: retry if its diagnosis says so
│  ├─ JobTimedOut                     the follower's deadline passed, and the job was stopped
│  └─ JobDeleted                      the job was deleted while it was followed
├─ JobTakenOver                       a later try has adopted the job, so this one did not stop it
├─ OutputsNotVerified                 the job succeeded, its outputs could not be inspected: a retry inspects again
├─ ClusterError                       the API server (or this machine) refused a request
│  ├─ JobNotFound
│  ├─ JobAlreadyExists
│  ├─ JobChanged                      the job is not the one that was judged: judge again
│  ├─ PermissionDenied
│  └─ ClusterUnavailable              a retry helps
├─ LedgerUnavailable                  the ledger, or the source of the runs' states, did not answer: a retry helps
├─ ReservationLost                    another run has reserved this training's batches: never retry
└─ UnsupportedByBackend               the back-end does not support the request: never retry
   └─ KindNotServed                   the back-end does not serve this kind of job
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ptjob_provider.core.diagnosis import Diagnosis
    from ptjob_provider.core.identity import JobRef
    from ptjob_provider.core.status import JobStatus


_VARIABLES = re.compile(r"(^|\.)(env($|[.\[])(?!.*\.valueFrom\.)|env(_f|F)rom(\[\d+\])?$)")
"""Matches the path of a container's variables and of all that is in them, but for the names of Secrets and keys."""
_HAS_VARIABLES = re.compile(r"\benv(_?from)?\W{0,3}:", re.IGNORECASE)
"""Matches the text of a map, an object, YAML or JSON that has variables in it."""


class PTJobError(Exception):
    """Base class of the errors of this package."""

    retryable: bool = False
    """True if retrying the same action may help."""

    cause: str = "error"
    """Stable code of the error, for programs; for a failed job, the cause of its diagnosis."""


class InvalidSpec(PTJobError, ValueError):
    """The request is invalid; nothing was started.

    The text names the field, its value and the allowed values.

    Attributes:
        field: path of the field in the request, such as `worker.cpu` or `volumes[0]`; "" if the error is of no field.
        value: the given value; None if it is missing, or if the text does not show it.
        allowed: the end of the text: what is allowed, or why the field is refused.
        shows_value: whether the text shows the value.
    """

    cause = "invalid_spec"
    field = ""
    value: object = None
    allowed = ""
    shows_value = False

    @classmethod
    def of(cls, field: str, value: object, allowed: str) -> InvalidSpec:
        """Build the error for a value of one field of the request; variables may be secret, and show none.

        Their names are cut at the first `=`: a variable that was written `NAME=VALUE` has become a name.
        """
        shown = _short(value)
        if value is not None and (_VARIABLES.search(field) or _HAS_VARIABLES.search(shown)):
            return cls.at(field.partition("=")[0], f"this value is not allowed; {allowed}")
        error = cls(f"{field}: {shown} is not allowed; {allowed}")
        error.field, error.value, error.allowed, error.shows_value = field, value, allowed, True
        return error

    @classmethod
    def at(cls, field: str, rule: str) -> InvalidSpec:
        """Build the error for one field of the request without showing its value: it may be secret, or long."""
        error = cls(f"{field}: {rule}")
        error.field, error.allowed = field, rule
        return error

    def renamed(self, field: str) -> InvalidSpec:
        """Return the error under the name under which the user gave its field; unchanged if it is of no field."""
        if not self.field:
            return self
        return self.of(field, self.value, self.allowed) if self.shows_value else self.at(field, self.allowed)


class NotThere(InvalidSpec):
    """A claim that the request names, or a folder on it, does not exist."""

    @classmethod
    def claim(cls, claim: str, namespace: str, *, where: str = "") -> NotThere:
        """Build the error for a missing claim; `where` says where it was looked for."""
        looked = f" ({where})" if where else ""
        allowed = f"name a claim of namespace {namespace} (ptjob data list), or make it (ptjob data create {claim})"
        return cls(f"claim: {claim!r} is not there{looked}; {allowed}")


class UnsupportedByBackend(PTJobError):
    """The back-end does not support a part of the job, and refuses the job before anything starts."""

    cause = "unsupported"

    @classmethod
    def of(cls, field: str, why: str) -> UnsupportedByBackend:
        """Build the error for one field of the manifest."""
        return cls(f"{field}: {why}")


class KindNotServed(UnsupportedByBackend):
    """The back-end does not serve this kind of job; nothing was created."""


class JobFailed(PTJobError):
    """The training ended without success.

    The first line of the text says which replica failed, why, and what to do next; the replica's last log lines follow.
    If the job was given up and left in place, its status is not terminal.
    """

    def __init__(self, ref: JobRef, status: JobStatus, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis.report(ref, has_ended=status.phase.is_terminal))
        self.ref = ref
        self.status = status
        self.diagnosis = diagnosis
        self.retryable = diagnosis.retryable
        self.cause = diagnosis.cause.value


class JobTimedOut(JobFailed):
    """The job was unfinished at its follower's deadline, and was stopped."""


class JobDeleted(JobFailed):
    """The job was deleted by another client while it was followed; its progress is unknown."""


class JobTakenOver(PTJobError):
    """A later try has adopted the job, so this try's follower has ended without stopping it."""

    retryable = True


class OutputsNotVerified(PTJobError):
    """The job succeeded, but its outputs could not be inspected; a retry adopts the finished job and inspects again."""

    cause = "outputs_not_verified"

    retryable = True

    @classmethod
    def of_gone(cls, ref: JobRef) -> OutputsNotVerified:
        """Build the error for a job whose object went before anybody could inspect its outputs; no retry helps."""
        error = cls(
            f"{ref} succeeded, but it is gone, and its outputs were never verified. It is not trained again by itself: "
            "look at the outputs; to train anew, clear its Airflow task or start its pipeline again"
        )
        error.retryable = False
        return error


class ClusterError(PTJobError):
    """The API server refused a request, or failed to serve it.

    Attributes:
        code: the HTTP status; 0 for none.
        reason: the server's reason, such as `AlreadyExists`; "" for none.
        retry_after: the server's Retry-After in seconds; None if the server sent none.
    """

    cause = "cluster_error"

    def __init__(self, message: str, *, code: int = 0, reason: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.retry_after = retry_after


class JobNotFound(ClusterError):
    """No job has the name, or the job with the name has another uid than requested."""


class JobAlreadyExists(ClusterError):
    """Another object has the name; nothing was created."""


class JobChanged(ClusterError):
    """The job has changed since it was read, so it was not deleted."""


class PermissionDenied(ClusterError):
    """The credentials do not permit the request; the text names the verb and the resource."""

    cause = "permission_denied"


class ClusterUnavailable(ClusterError):
    """The back-end did not answer in time, or reported that it is overloaded."""

    cause = "cluster_unavailable"

    retryable = True


class LedgerUnavailable(PTJobError):
    """The ledger's database, or the source of the states of the runs that have reserved batches, did not answer."""

    cause = "ledger_unavailable"

    retryable = True


class ReservationLost(PTJobError):
    """A run was about to train on batches that it has not reserved."""

    cause = "claim_lost"


def _short(value: object, limit: int = 120) -> str:
    # Python refuses to write a very long number in decimal digits.
    text = hex(value) if isinstance(value, int) and value.bit_length() > 1024 else repr(value)  # noqa: PLR2004
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def one_of(words: Iterable[object], given: object = "") -> str:
    """Return the end of an error text: `allowed: A, B`, and the allowed value that is closest to the given one."""
    texts = [str(word) for word in words]
    close = nearest(given, texts)
    return "allowed: " + ", ".join(texts) + (f"; did you mean {close}?" if close else "")


def in_ptjob(option: str) -> str:
    """Return the name of an installation's option in Airflow's configuration; other adapters name it in their way."""
    return f"[ptjob] {option}"


_PREFIX = 3
"""Minimum length of a beginning that is taken for the whole word."""


def nearest(given: object, words: Iterable[str]) -> str:
    """Return the word that is closest to the given one or begins with it, ignoring case; "" if none does."""
    import difflib  # noqa: PLC0415 - only needed for an error

    by_lower, text = {word.lower(): word for word in words}, str(given).lower()
    close = difflib.get_close_matches(text, by_lower, n=1) or [
        word for word in by_lower if len(text) >= _PREFIX and word.startswith(text)
    ]
    return by_lower[close[0]] if close else ""
