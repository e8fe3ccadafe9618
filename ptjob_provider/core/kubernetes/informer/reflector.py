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


@dataclass(frozen=True, slots=True)
class Applied:
    """An existing object in its current state."""

    object: Manifest


@dataclass(frozen=True, slots=True)
class Deleted:
    """An object that left the selection, in its last state: deleted, or relabelled."""

    object: Manifest


@dataclass(frozen=True, slots=True)
class Synced:
    """The list is complete; it lacks these known objects."""

    missing: set[str]


@dataclass(frozen=True, slots=True)
class Restored:
    """The server was restored from a backup: a new list follows, whose objects have lower versions."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The server has opened a watch."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The server has refused the request, which is retried."""

    error: PTJobError


Event = Applied | Deleted | Synced | Restored | Opened | Refused


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
        self._list_options = {"accept": METADATA_LIST} if metadata_only else {}
        self._watch_options = {"accept": METADATA} if metadata_only else {}
        self._selector = selector or {}
        self._version = ""
        self._newest = 0
        self._silence = 0.0
        self._silent_since: float | None = None
        self._backoff = Backoff(*_PAUSES)
        self._logged = ""

    async def events(self) -> AsyncGenerator[Event, None]:
        """Yield the existing objects, then changes, without end; refusals and missing answers are retried."""
        while True:
            started, failure = time.monotonic(), None
            try:
                async with aclosing(await self._list_or_resume()) as events:
                    async for event in events:
                        self._log_recovery()
                        if isinstance(event, Applied):
                            self._unlisted.discard(event.object["metadata"]["uid"])
                        yield event
            except PTJobError as error:
                failure = error
            self._count_silence()
            if failure is not None and self._is_refused(failure):
                yield Refused(failure)
            has_lasted = time.monotonic() - started >= _SETTLED
            self._backoff.failures = 0 if has_lasted else self._backoff.failures + 1
            retry_after = failure.retry_after if isinstance(failure, ClusterUnavailable) else None
            if not has_lasted or retry_after is not None:
                self._log_pause(str(failure or "ended by the server"))
                await self._backoff.pause(at_least=retry_after or 0.0)

    async def _list_or_resume(self) -> AsyncGenerator[Event, None]:
        """Return the events of one connection: from the last version if the server knows it, else after a list."""
        if self._version and self._silence >= _DOUBT:
            await self._verify_version()
        if self._version:
            return self._watch(resourceVersion=self._version)
        self._unlisted = set(self._known())
        return self._streaming_list() if self._client.streams_lists else self._paged_list()

    def _is_refused(self, failure: PTJobError) -> bool:
        """Return True for a refusal; reset a version that the server does not know, so that a full list follows."""
        is_gone = isinstance(failure, ClusterError) and failure.code == HTTPStatus.GONE
        is_away = isinstance(failure, ClusterUnavailable)
        if is_gone or (is_away and _AHEAD in str(failure)):
            self._version = ""
        return not is_gone and not is_away

    async def _verify_version(self) -> None:
        """Reset the version if the server's own is lower: it was restored from a backup."""
        page = await self._client.get(self._path, limit="1", **self._list_options, **self._selector)
        version = str((page.get("metadata") or {}).get("resourceVersion"))
        self._silence = 0.0
        if version.isdecimal() and int(version) < int(self._version):
            self._version = ""

    def _count_silence(self) -> None:
        if self._silent_since is not None:
            self._silence += time.monotonic() - self._silent_since
            self._silent_since = None

    async def _streaming_list(self) -> AsyncGenerator[Event, None]:
        try:
            async for event in self._watch(sendInitialEvents="true", resourceVersionMatch="NotOlderThan"):
                yield event
        except InvalidSpec:
            self._client.streams_lists = False  # the server's answer if it does not support streaming lists

    async def _paged_list(self) -> AsyncGenerator[Event, None]:
        version = ""
        async for page in self._client.pages(self._path, **self._list_options, **self._selector):
            for item in page.items:
                yield Applied(item)
            version = page.version
        if self._was_restored(version):
            yield Restored()
            return
        self._advance(version)
        yield Synced(self._unlisted)
        async for event in self._watch(resourceVersion=version):
            yield event

    async def _watch(self, **since: str) -> AsyncGenerator[Event, None]:
        is_synced = bool(self._version)
        async for raw in self._raw_events(since):
            if raw is None:
                self._silent_since = time.monotonic()
                yield Opened()
                continue
            self._silence, self._silent_since = 0.0, None
            changed, kind = raw["object"], raw["type"]
            meta = changed["metadata"]
            if kind == "BOOKMARK" and (meta.get("annotations") or {}).get(_INITIAL_END):
                if self._was_restored(meta["resourceVersion"]):
                    yield Restored()
                    return
                is_synced = True
                yield Synced(self._unlisted)
            elif kind != "BOOKMARK":
                yield Deleted(changed) if kind == "DELETED" else Applied(changed)
            if is_synced:
                self._advance(meta["resourceVersion"])

    def _was_restored(self, version: str) -> bool:
        """Return True if the collection is older than the observed state, and restart from its version."""
        before, self._newest = self._newest, int(version)
        return self._newest < before

    def _advance(self, version: str) -> None:
        self._version, self._newest = version, max(self._newest, int(version))

    async def _raw_events(self, since: Mapping[str, str]) -> AsyncGenerator[dict[str, Any] | None, None]:
        """Yield None when the watch is open, then its events as sent."""
        query = {
            **self._selector,
            **since,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(*_WATCH_SECONDS)),  # noqa: S311 - spreads load, keeps no secret
        }
        async with self._client.stream(self._path, silence=_SILENCE, **self._watch_options, **query) as chunks:
            yield None
            async for line in _lines(chunks):
                yield _parse(line, self._path)

    def _log_pause(self, reason: str) -> None:
        """Log why the watch is reopened, once while the reason stays the same."""
        if reason != self._logged:
            logger.info("%s: %s; watching it again soon, with pauses", self._path, reason)
            self._logged = reason

    def _log_recovery(self) -> None:
        if self._logged:
            logger.info("%s: is watched again", self._path)
            self._logged = ""


async def _lines(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line


def _parse(line: bytes, path: str) -> dict[str, Any]:
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


def _is_event(value: Any) -> bool:
    """Return True if a line is a watch event; a gateway may have sent a page of its own."""
    if not isinstance(value, dict) or not isinstance(value.get("object"), dict) or "type" not in value:
        return False
    meta = value["object"].get("metadata")
    return value["type"] == "ERROR" or (isinstance(meta, dict) and str(meta.get("resourceVersion")).isdecimal())
