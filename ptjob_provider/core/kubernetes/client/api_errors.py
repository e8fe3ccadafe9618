"""Map the API server's error responses to the core's errors, by status code and `reason`.

    status                      becomes               retried here
    -------------------------   -------------------   ------------
    400, 422                    InvalidSpec           no
    400, 422, no object sent    ClusterError          no: it is about no job, and may be a gateway's
    401                         PermissionDenied      once, with a reloaded credential
    403                         PermissionDenied      no
    403 from a webhook          InvalidSpec           no: the webhook rejects the object, not the user
    403, a quota is full        ClusterUnavailable    no: a quota stays full for long
    403, a quota is uncounted   ClusterUnavailable    yes: the quota was created a moment ago
    404 of a named object       JobNotFound           no
    404 otherwise               ClusterError          no: the resource itself is not served
    409 AlreadyExists           JobAlreadyExists      no
    409 otherwise               ClusterError          no: a precondition failed
    410                         ClusterError          no: the watch restarts with a list
    2xx without a JSON object   ClusterError          no: it is a gateway's, such as its login page
    429, 5xx, no response       ClusterUnavailable    yes
    refused retry of a create   ClusterUnavailable    no: the try without a response may have created the object
    untrusted certificate       ClusterError          no

A full quota and a missing permission have the same code and reason; only the message distinguishes them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import (
    ClusterError,
    ClusterUnavailable,
    InvalidSpec,
    JobAlreadyExists,
    JobNotFound,
    PermissionDenied,
    PTJobError,
)
from ptjob_provider.core.kubernetes.rights import folder_that_grants

if TYPE_CHECKING:
    from collections.abc import Mapping

_QUOTA_FULL = "exceeded quota"
_QUOTA_UNCOUNTED = "status unknown for quota"

UNSURE = "it was sent before without an answer, and may have been done then"
"""Said of a create that was repeated and then refused, or could not be sent again."""

_DENIED_BY_WEBHOOK = re.compile(r'admission webhook "[^"]+" denied the request')

_LONGEST = 2000
_LONGEST_RETRY_AFTER = 60.0
"""Maximum seconds of a Retry-After header that are respected; a longer one is a gateway's mistake."""

_INVALID = {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY}


@dataclass(kw_only=True, eq=False)
class Refusal(Exception):
    """An error response, or a missing response (code 0); only `http` raises it, and converts it by `error`.

    Attributes:
        code: HTTP status.
        reason: the server's reason, such as `AlreadyExists`; for code 0 a name of the failure.
        message: the server's message.
        named: the response is about one named object.
        retry_after: the server's Retry-After in seconds, at most a minute; None if the header is missing.
        final: a retry would fail in the same way, such as for an untrusted certificate.
    """

    code: int
    reason: str = ""
    message: str = ""
    named: bool = False
    retry_after: float | None = None
    final: bool = False

    @classmethod
    def read(cls, code: int, body: bytes, retry_after: str | None = None) -> Refusal:
        """Return the parsed response; its body is a `Status` object, or text of a proxy."""
        status = _status(body)
        return cls(
            code=code,
            reason=str(status.get("reason") or ""),
            message=str(status.get("message") or " ".join(body.decode("utf-8", "replace").split()))[:_LONGEST],
            named=bool((status.get("details") or {}).get("name")),
            retry_after=min(float(retry_after), _LONGEST_RETRY_AFTER)
            if retry_after and retry_after.isdecimal()
            else None,
        )

    @property
    def is_temporary(self) -> bool:
        """Return whether a retry soon may help."""
        overloaded = self.code == HTTPStatus.TOO_MANY_REQUESTS or self.code >= HTTPStatus.INTERNAL_SERVER_ERROR
        uncounted = self.code == HTTPStatus.FORBIDDEN and _QUOTA_UNCOUNTED in self.message
        return overloaded or uncounted or (self.code == 0 and not self.final)

    def error(self, request: str, *, sent: bool = True, is_unsure: bool = False) -> PTJobError:
        """Return the error to raise; its text has the request and the server's message.

        Args:
            request: description of the request, see `paths.described`.
            sent: the request had something that the server may reject: an object, or parameters of a stream.
            is_unsure: an earlier try of the same create got no response, so that its object may exist.
        """
        message = self.message or self.reason or "no answer"
        text = f"{request}: {message}" + (f" ({self.code} {self.reason})".replace(" )", ")") if self.code else "")
        is_denied_by_webhook = self.code == HTTPStatus.FORBIDDEN and _DENIED_BY_WEBHOOK.match(self.message)
        if is_unsure and not is_denied_by_webhook and self.code != HTTPStatus.CONFLICT:
            text += f"; {UNSURE}"
            return ClusterUnavailable(text, code=self.code, reason=self.reason, retry_after=self.retry_after)
        if is_denied_by_webhook or (sent and self.code in _INVALID):
            return InvalidSpec(text)
        if self.code == HTTPStatus.NOT_FOUND and not self.named:
            text += "; the cluster does not serve this resource"
        error = _class_of(self)
        if error is PermissionDenied and (folder := folder_that_grants(self.message)):
            text += f"; the Role of {folder} grants this: bind it to this account"
        return error(text, code=self.code, reason=self.reason, retry_after=self.retry_after)


def is_cut(body: bytes) -> bool:
    """Return whether a body that cannot be read is the beginning of an object; else it is a gateway's own text."""
    return body.lstrip().startswith(b"{")


def _class_of(refusal: Refusal) -> type[ClusterError]:
    if refusal.is_temporary or (refusal.code == HTTPStatus.FORBIDDEN and _QUOTA_FULL in refusal.message):
        return ClusterUnavailable
    if refusal.code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return PermissionDenied
    if refusal.code == HTTPStatus.NOT_FOUND and refusal.named:
        return JobNotFound
    if refusal.code == HTTPStatus.CONFLICT and refusal.reason == "AlreadyExists":
        return JobAlreadyExists
    return ClusterError


def _status(body: bytes) -> Mapping[str, Any]:
    try:
        status = json.loads(body)
    except ValueError:
        return {}
    return status if isinstance(status, dict) and status.get("kind") == "Status" else {}
