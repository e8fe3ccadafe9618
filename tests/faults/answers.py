"""Error responses of an API server, and of a gateway in front of it: headers and bodies by status code.

The texts are those of a real server (v1.34) and of nginx.
"""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import Any

from aiohttp import web

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}
_PAGE = "<html>\r\n<head><title>{0}</title></head>\r\n<body>\r\n<center><h1>{0}</h1></center>\r\n</body>\r\n</html>\r\n"
_VERSION = re.compile(rb'"resourceVersion": ?"(\d+)"')


def refusal(code: int, what: str = "it", *, page: bool = False, retry_after: int | None = None) -> web.Response:
    """Return the response that refuses a request for this resource, as the server's Status or as a gateway's page."""
    headers = {"Retry-After": str(retry_after)} if retry_after is not None else {}
    if page:
        text = _PAGE.format(f"{code} {HTTPStatus(code).phrase}")
        return web.Response(text=text, content_type="text/html", status=code, headers=headers)
    return web.json_response(status(code, what), status=code, headers=headers)


def status(code: int, what: str = "it") -> dict[str, Any]:
    """Return the Status object of this code."""
    messages = {
        400: "the fault proxy says 400: the server rejected our request for an unknown reason",
        401: "Unauthorized",
        403: f'{what} is forbidden: User "faults" cannot do this to resource "{what}" (the fault proxy says 403)',
    }
    return _status(code, REASONS[code], messages.get(code, f"the fault proxy says {code}"))


def too_large(version: int, current: int) -> dict[str, Any]:
    """Return the Status of a server that has waited in vain to reach a version."""
    text = "Too large resource version"
    found = _status(504, "Timeout", f"Timeout: {text}: {version}, current: {current}")
    causes = [{"reason": "ResourceVersionTooLarge", "message": text}]
    return {**found, "details": {"causes": causes, "retryAfterSeconds": 1}}


def event(kind: str, about: dict[str, Any]) -> bytes:
    """Return a line of a watch."""
    return json.dumps({"type": kind, "object": about}).encode() + b"\n"


def with_lower_versions(data: bytes, by: int) -> bytes:
    """Return complete JSON with each resourceVersion reduced by `by`."""
    return _VERSION.sub(lambda found: b'"resourceVersion":"%d"' % max(1, int(found[1]) - by), data)


def _status(code: int, reason: str, message: str) -> dict[str, Any]:
    shared = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**shared, "code": code, "reason": reason, "message": message}
