"""LIST, then WATCH without end: every object of a selection, and every change of it, each once.

The initial state comes as a streaming list where the server supports it (KEP-3157), else page by page. The server ends
a watch after some minutes, a proxy at any time, and 410 means that too much was missed; the watch then resumes from the
last version, or restarts with a list. Bookmarks keep that version recent.

A server whose etcd was restored no longer knows that version. Some answer that it is too large; Kubernetes 1.34 opens
the watch and sends nothing at all (tested), so a silent watch is verified. Then everything is listed again, twice: only
the end of the first list shows that its versions are lower than earlier ones.
"""

from __future__ import annotations

import json
import logging
import random
import time
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import ClusterError, ClusterUnavailable, InvalidSpec, PTJobError
from ptjob_provider.core.kubernetes.client.http import METADATA, METADATA_LIST
from ptjob_provider.core.shared import Backoff

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.client.http import Client

logger = logging.getLogger(__name__)

_WATCH_SECONDS = (300, 600)
"""Range of the requested watch duration, as in client-go; random, so that many do not end at once."""

_SILENCE = 150.0
"""Seconds without a byte after which a watch is dead: the server sends a bookmark every minute."""

_QUOTED = 200
_SETTLED = 5.0
"""Minimum seconds of a successful watch; a shorter one is reopened with back-off."""

_DOUBT = 60.0
"""Seconds without events or bookmarks on open watches before the server's version is verified."""

_PAUSES = (0.2, 30.0)
"""Seconds between tries to reach an unresponsive server: at first, and at most."""

_INITIAL_END = "k8s.io/initial-events-end"

_AHEAD = "Too large resource version"
"""Part of the server's message for a version that it does not know yet, or no longer, in every version of
Kubernetes."""


class Mark(Enum):
    """Markers between objects."""

    BEGIN = auto()
    """A complete list follows, including known objects."""
    ANSWERED = auto()
    """The server has opened a watch."""
    RESTORED = auto()
    """The server was restored: what follows is newer although its versions are lower."""


@dataclass(frozen=True, slots=True)
class Applied:
    """An existing object in its current state."""

    object: Manifest


@dataclass(frozen=True, slots=True)
class Deleted:
    """An object that left the selection, in its last state: deleted, or relabelled."""

    object: Manifest


@dataclass(frozen=True, slots=True)
class Refused:
    """The server has refused the request, which is retried."""

    error: PTJobError


@dataclass(frozen=True, slots=True)
class Complete:
    """The list since `BEGIN` is complete; it lacks these known objects."""

    gone: set[str]


News = Mark | Applied | Deleted | Refused | Complete


class Reflector:
    """LIST+WATCH of one selection of a collection.

    Args:
        client: of the cluster.
        path: of the collection.
        selector: `labelSelector`, `fieldSelector`; None: all of it.
        metadata_only: omit spec and status.
        known: returns the uids that the reader knows when a list begins.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        selector: Mapping[str, str] | None = None,
        *,
        metadata_only: bool = False,
        known: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._known = known
        self._unlisted: set[str] = set()
        self._client = client
        self._path = path
        self._of_list = {"accept": METADATA_LIST} if metadata_only else {}
        self._of_watch = {"accept": METADATA} if metadata_only else {}
        self._selector = selector or {}
        self._version = ""
        self._newest = 0
        self._silence = 0.0
        self._silent_since: float | None = None
        self._backoff = Backoff(*_PAUSES)
        self._said = ""

    async def news(self) -> AsyncGenerator[News, None]:
        """Yield the existing objects, then changes, without end; refusals and missing answers are retried."""
        while True:
            opened, failure = time.monotonic(), None
            try:
                async with aclosing(self._one_connection()) as news:
                    async for each in news:
                        self._say_that_it_works(each)
                        if isinstance(each, Applied):
                            self._unlisted.discard(each.object["metadata"]["uid"])
                        yield each
            except PTJobError as error:
                failure = error
            self._count_silence()
            if failure is not None and self._is_refused(failure):
                yield Refused(failure)
            has_lasted = time.monotonic() - opened >= _SETTLED
            self._backoff.failures = 0 if has_lasted else self._backoff.failures + 1
            asked = failure.retry_after if isinstance(failure, ClusterUnavailable) else None
            if not has_lasted or asked is not None:
                await self._pause(str(failure or "ended by the server"), asked)

    def _is_refused(self, failure: PTJobError) -> bool:
        """Return True for a refusal; reset a version that the server does not know, so that a full list follows."""
        is_gone = isinstance(failure, ClusterError) and failure.code == HTTPStatus.GONE
        is_away = isinstance(failure, ClusterUnavailable)
        if is_gone or (is_away and _AHEAD in str(failure)):
            self._version = ""
        return not is_gone and not is_away

    async def _one_connection(self) -> AsyncGenerator[News, None]:
        if self._version and self._silence >= _DOUBT:
            await self._see_whether_restored()
        async with aclosing(self._from_where_it_was()) as news:
            async for each in news:
                yield each

    def _from_where_it_was(self) -> AsyncGenerator[News, None]:
        if self._version:
            return self._changes(resourceVersion=self._version)
        self._unlisted = set(self._known())
        return self._streamed_list() if self._client.streams_lists else self._paged_list()

    async def _see_whether_restored(self) -> None:
        found = await self._client.get(self._path, limit="1", **self._of_list, **self._selector)
        version = str((found.get("metadata") or {}).get("resourceVersion"))
        self._silence = 0.0
        if version.isdecimal() and int(version) < int(self._version):
            self._version = ""

    def _count_silence(self) -> None:
        if self._silent_since is not None:
            self._silence += time.monotonic() - self._silent_since
            self._silent_since = None

    async def _streamed_list(self) -> AsyncGenerator[News, None]:
        yield Mark.BEGIN
        try:
            async for each in self._changes(sendInitialEvents="true", resourceVersionMatch="NotOlderThan"):
                yield each
        except InvalidSpec:
            self._client.streams_lists = False  # the server's answer if it does not support streaming lists

    async def _paged_list(self) -> AsyncGenerator[News, None]:
        yield Mark.BEGIN
        version = ""
        async for page in self._client.pages(self._path, **self._of_list, **self._selector):
            for each in page.items:
                yield Applied(each)
            version = page.version
        if self._was_restored(version):
            yield Mark.RESTORED
            return
        self._go_on_from(version)
        yield Complete(self._unlisted)
        async for change in self._changes(resourceVersion=version):
            yield change

    async def _changes(self, **since: str) -> AsyncGenerator[News, None]:
        is_complete = bool(self._version)
        async for event in self._events(since):
            if event is None:
                self._silent_since = time.monotonic()
                yield Mark.ANSWERED
                continue
            self._silence, self._silent_since = 0.0, None
            seen, kind = event["object"], event["type"]
            meta = seen["metadata"]
            if kind == "BOOKMARK" and (meta.get("annotations") or {}).get(_INITIAL_END):
                if self._was_restored(meta["resourceVersion"]):
                    yield Mark.RESTORED
                    return
                is_complete = True
                yield Complete(self._unlisted)
            elif kind != "BOOKMARK":
                yield Deleted(seen) if kind == "DELETED" else Applied(seen)
            if is_complete:
                self._go_on_from(meta["resourceVersion"])

    def _was_restored(self, version: str) -> bool:
        """Return True if the collection is older than the observed state, and restart from its version."""
        before, self._newest = self._newest, int(version)
        return self._newest < before

    def _go_on_from(self, version: str) -> None:
        self._version, self._newest = version, max(self._newest, int(version))

    async def _events(self, since: Mapping[str, str]) -> AsyncGenerator[dict[str, Any] | None, None]:
        """Yield None when the watch is open, then its events."""
        query = {
            **self._selector,
            **since,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(*_WATCH_SECONDS)),  # noqa: S311 - spreads load, keeps no secret
        }
        async with self._client.stream(self._path, silence=_SILENCE, **self._of_watch, **query) as chunks:
            yield None
            async for line in _lines(chunks):
                yield _checked(line, self._path)

    async def _pause(self, why: str, asked: float | None) -> None:
        if why != self._said:  # logs a repeated reason once
            logger.info("%s: %s; watching it again soon, with pauses", self._path, why)
            self._said = why
        await self._backoff.pause(at_least=asked or 0.0)

    def _say_that_it_works(self, news: News) -> None:
        if self._said and news not in (Mark.BEGIN, Mark.RESTORED):
            logger.info("%s: is watched again", self._path)
            self._said = ""


async def _lines(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line


def _checked(line: bytes, path: str) -> dict[str, Any]:
    """Return the event; raise if it ends the watch or is malformed."""
    try:
        event: dict[str, Any] = json.loads(line)
    except ValueError:
        raise ClusterUnavailable(f"{path}: the watch was cut within an event") from None
    if not _is_event(event):
        raise ClusterError(f"{path}: this is no event of a watch: {line[:_QUOTED].decode(errors='replace')}")
    if event["type"] != "ERROR":
        return event
    status = event["object"]
    code, text = status.get("code") or 0, f"{path}: the watch was ended: {status.get('message')}"
    raise ClusterError(text, code=code) if code == HTTPStatus.GONE else ClusterUnavailable(text, code=code)


def _is_event(found: Any) -> bool:
    """Return True if a line is a watch event; a gateway may have sent a page of its own."""
    if not isinstance(found, dict) or not isinstance(found.get("object"), dict) or "type" not in found:
        return False
    meta = found["object"].get("metadata")
    return found["type"] == "ERROR" or (isinstance(meta, dict) and str(meta.get("resourceVersion")).isdecimal())
