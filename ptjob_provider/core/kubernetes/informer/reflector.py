"""List and watch a collection without end: yields each object of a selection, and then each change.

The server ends every watch after some minutes, and a proxy may end it at any time. The watch is then resumed from the
last resource version; after 410, which means that this version is too old, everything is listed again. Bookmarks keep
it recent.

A list shows the newest state, even if its versions are lower than those before: then the server was restored from a
backup. Some servers answer a watch from a version before the restore that it is too large, but Kubernetes 1.34 opens it
and sends nothing at all (tested). After silent watches, everything is therefore listed again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import ClusterError, ClusterUnavailable, PTJobError
from ptjob_provider.core.kubernetes.client.api_errors import is_cut
from ptjob_provider.core.shared import Backoff

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.client.http import Client

logger = logging.getLogger(__name__)

_WATCH_SECONDS = (300, 600)
"""Range of the requested watch duration, as in client-go; a random value, so that many watches do not end at once."""

_SILENCE = 150.0
"""Seconds without a byte after which a watch is considered dead: the server sends a bookmark every minute."""

_QUOTED = 200
_SETTLED = 5.0
"""Seconds after which a watch counts as successful; a shorter one is reopened with back-off."""

_DOUBT = 60.0
"""Seconds without events or bookmarks on open watches, after which everything is listed again."""

_PAUSES = (0.2, 30.0)
"""Minimum and maximum seconds between tries to reach an unresponsive server."""

_AHEAD = "Too large resource version"
"""Part of the message of every Kubernetes version for a resource version that is higher than the server's own."""


@dataclass(frozen=True, slots=True)
class Applied:
    """An existing object.

    Attributes:
        object: its current state.
        is_listed: a list has shown it, so that it counts whatever its version is.
    """

    object: Manifest
    is_listed: bool = False


@dataclass(frozen=True, slots=True)
class Deleted:
    """The last state of an object that was deleted, or no longer matches the selector."""

    object: Manifest


@dataclass(frozen=True, slots=True)
class Synced:
    """The list is complete; `missing` has the uids of the known objects that are not in it."""

    missing: set[str]


@dataclass(frozen=True, slots=True)
class Opened:
    """The server has opened a watch."""


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """The server has refused the request, which will be retried."""

    error: PTJobError


Event = Applied | Deleted | Synced | Opened | RequestRefused


class Reflector:
    """Lists and watches the selected objects of a collection.

    Args:
        client: client of the cluster.
        path: path of the collection.
        selector: `labelSelector` and `fieldSelector`; None: all objects.
        known: called when a list begins; returns the uids of the objects that the consumer has cached.
        confirm: called when the server has confirmed what was yielded so far: by an event, a bookmark, a complete list.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        selector: Mapping[str, str] | None = None,
        *,
        known: Callable[[], Iterable[str]] = tuple,
        confirm: Callable[[], None] = lambda: None,
    ) -> None:
        self._known = known
        self._confirm = confirm
        self._client = client
        self._path = path
        self._selector = selector or {}
        self._version = ""
        self._silence = 0.0
        self._silent_since: float | None = None
        self._backoff = Backoff(*_PAUSES)
        self._logged = ""

    async def events(self) -> AsyncGenerator[Event, None]:
        """Yield the existing objects, then their changes, without end; failed and refused requests are retried."""
        while True:
            started, failure = time.monotonic(), None
            try:
                async with aclosing(self._watch() if self._version else self._list()) as events:
                    async for event in events:
                        self._log_recovery()
                        yield event
            except PTJobError as error:
                failure = error
            self._doubt_silence()
            if failure is not None and self._is_refused(failure):
                yield RequestRefused(failure)
            has_lasted = time.monotonic() - started >= _SETTLED
            self._backoff.failures = 0 if has_lasted else self._backoff.failures + 1
            retry_after = failure.retry_after if isinstance(failure, ClusterUnavailable) else None
            if not has_lasted or retry_after is not None:
                self._log_pause(str(failure or "ended by the server"))
                await self._backoff.pause(at_least=retry_after or 0.0)

    def _is_refused(self, failure: PTJobError) -> bool:
        """Return whether the request was refused; unset a version that is unknown to the server, to list again."""
        is_gone = isinstance(failure, ClusterError) and failure.code == HTTPStatus.GONE
        is_unavailable = isinstance(failure, ClusterUnavailable)
        if is_gone or (is_unavailable and _AHEAD in str(failure)):
            self._version = ""
        return not is_gone and not is_unavailable

    def _doubt_silence(self) -> None:
        """Unset the last version if watches from it were silent for long: the server may not know it."""
        if self._silent_since is not None:
            self._silence += time.monotonic() - self._silent_since
            self._silent_since = None
        if self._silence >= _DOUBT:
            self._version, self._silence = "", 0.0

    async def _list(self) -> AsyncGenerator[Event, None]:
        """Yield the events of a list, page by page, and of the watch that begins at its version."""
        missing = set(self._known())
        async for page in self._client.pages(self._path, **self._selector):
            for item in page.items:
                missing.discard(item["metadata"]["uid"])
                yield Applied(item, is_listed=True)
                await asyncio.sleep(0)  # a page of 500 objects must not block the loop
            version = page.version
        self._version = version
        yield Synced(missing)
        self._confirm()
        async for event in self._watch():
            yield event

    async def _watch(self) -> AsyncGenerator[Event, None]:
        query = {
            **self._selector,
            "resourceVersion": self._version,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(*_WATCH_SECONDS)),  # noqa: S311 - spreads load, keeps no secret
        }
        async with self._client.stream(self._path, silence=_SILENCE, **query) as chunks:
            self._silent_since = time.monotonic()
            yield Opened()
            async for event_type, manifest in _parsed(chunks, self._path):
                self._silence, self._silent_since = 0.0, None
                if event_type != "BOOKMARK":
                    yield Deleted(manifest) if event_type == "DELETED" else Applied(manifest)
                self._version = manifest["metadata"]["resourceVersion"]
                self._confirm()

    def _log_pause(self, reason: str) -> None:
        """Log why the watch is reopened; the same reason is logged once until the watch works again."""
        if reason != self._logged:
            logger.info("%s: %s; watching it again soon, with pauses", self._path, reason)
            self._logged = reason

    def _log_recovery(self) -> None:
        if self._logged:
            logger.info("%s: is watched again", self._path)
            self._logged = ""


async def _parsed(chunks: AsyncGenerator[bytes, None], path: str) -> AsyncGenerator[tuple[str, Manifest], None]:
    """Yield type and object of each event, which is a line."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield _parse(line, path)
    if rest and not is_cut(rest):
        yield _parse(rest, path)


def _parse(line: bytes, path: str) -> tuple[str, Manifest]:
    """Return type and object of the event in a line of the watch.

    Raises:
        ClusterUnavailable: the line is truncated, or is an error that ends the watch.
        ClusterError: the line is no event, or is the error 410.
    """
    try:
        event = json.loads(line)
    except ValueError:
        if is_cut(line):
            raise ClusterUnavailable(f"{path}: the watch was cut within an event") from None
        event = None
    if not _is_event(event):
        raise ClusterError(f"{path}: this is no event of a watch: {line[:_QUOTED].decode(errors='replace')}")
    if event["type"] != "ERROR":
        return event["type"], event["object"]
    status = event["object"]
    code, text = status.get("code") or 0, f"{path}: the watch was ended: {status.get('message')}"
    raise ClusterError(text, code=code) if code == HTTPStatus.GONE else ClusterUnavailable(text, code=code)


def _is_event(value: Any) -> bool:
    """Return whether the value is a watch event; a gateway may have sent something else."""
    if not isinstance(value, dict) or not isinstance(value.get("object"), dict) or "type" not in value:
        return False
    meta = value["object"].get("metadata")
    return value["type"] == "ERROR" or (isinstance(meta, dict) and str(meta.get("resourceVersion")).isdecimal())
