"""LIST, then WATCH from there, without end: every object of a selection, and every change of it, each once.

The first state comes as a streaming list where the server has it (KEP-3157), else page by page. A watch is ended by
the server after some minutes, by a proxy when it likes, and answers 410 when it has missed too much; then it is opened
again from the last version that was seen, or everything is told anew. Bookmarks keep that version young.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import ClusterError, ClusterUnavailable, InvalidSpec
from ptjob_provider.core.kubernetes.client import METADATA, METADATA_LIST

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.client import Client

logger = logging.getLogger(__name__)

_WATCH_SECONDS = (300, 600)
"""How long the server is asked to serve one watch, as client-go does; random, so that many do not end at once."""

_SILENCE = 150.0
"""Seconds without a byte after which a watch is dead: the server sends a bookmark every minute."""

_SETTLED = 5.0
"""Seconds after which a watch that ends has not failed: one that ends sooner is opened again with pauses."""

_PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
"""Seconds between tries to reach a server that does not answer; the last one again and again."""

_INITIAL_END = "k8s.io/initial-events-end"


class Mark(Enum):
    """What is told between objects."""

    BEGIN = auto()
    """Everything that is there is told from here on, whether it was told before or not."""
    COMPLETE = auto()
    """It has been told: what was not told since `BEGIN` is not there any more."""


@dataclass(frozen=True, slots=True)
class Present:
    """An object that is there, as it is now."""

    object: Manifest


@dataclass(frozen=True, slots=True)
class Gone:
    """An object that is not selected any more, in its last state: deleted, or its labels were changed."""

    object: Manifest


News = Mark | Present | Gone


class Watch:
    """One selection of a collection.

    Args:
        client: of the cluster.
        path: of the collection.
        selector: `labelSelector`, `fieldSelector`; None: all of it.
        metadata_only: whether the objects are wanted without their spec and status.
    """

    def __init__(
        self, client: Client, path: str, selector: Mapping[str, str] | None = None, *, metadata_only: bool = False
    ) -> None:
        self._client = client
        self._path = path
        self._of_list = {"accept": METADATA_LIST} if metadata_only else {}
        self._of_watch = {"accept": METADATA} if metadata_only else {}
        self._selector = selector or {}
        self._version = ""
        self._failures = 0
        self._said = ""

    async def news(self) -> AsyncGenerator[News, None]:
        """Yield what is there, then what changes, without end.

        Raises:
            PermissionDenied, ClusterError: the server refuses for good. One that does not answer is asked again.
        """
        while True:
            opened, asked = time.monotonic(), None
            try:
                async with aclosing(self._one_connection()) as news:
                    async for each in news:
                        self._say_that_it_works(each)
                        yield each
                why = "ended by the server"
            except ClusterUnavailable as error:
                why, asked = str(error), error.retry_after
            except ClusterError as error:
                if error.code != HTTPStatus.GONE:
                    raise
                self._version, why = "", "its version is forgotten"
            has_lasted = time.monotonic() - opened >= _SETTLED
            self._failures = 0 if has_lasted else self._failures + 1
            if not has_lasted or asked is not None:
                await self._pause(why, asked)

    def _one_connection(self) -> AsyncGenerator[News, None]:
        if self._version:
            return self._changes(resourceVersion=self._version)
        return self._streamed_list() if self._client.streams_lists else self._paged_list()

    async def _streamed_list(self) -> AsyncGenerator[News, None]:
        yield Mark.BEGIN
        try:
            async for each in self._changes(sendInitialEvents="true", resourceVersionMatch="NotOlderThan"):
                yield each
        except InvalidSpec:
            self._client.streams_lists = False  # the server has not got that; this is how it says so

    async def _paged_list(self) -> AsyncGenerator[News, None]:
        yield Mark.BEGIN
        version = ""
        async for page in self._client.pages(self._path, **self._of_list, **self._selector):
            for each in page.items:
                yield Present(each)
            version = page.version
        self._version = version
        yield Mark.COMPLETE
        async for change in self._changes(resourceVersion=version):
            yield change

    async def _changes(self, **since: str) -> AsyncGenerator[News, None]:
        is_complete = bool(self._version)
        async for event in self._events(since):
            seen, kind = event["object"], event["type"]
            meta = seen["metadata"]
            if kind == "BOOKMARK" and (meta.get("annotations") or {}).get(_INITIAL_END):
                is_complete = True
                yield Mark.COMPLETE
            elif kind != "BOOKMARK":
                yield Gone(seen) if kind == "DELETED" else Present(seen)
            if is_complete:
                self._version = meta["resourceVersion"]

    async def _events(self, since: Mapping[str, str]) -> AsyncGenerator[dict[str, Any], None]:
        query = {
            **self._selector,
            **since,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(*_WATCH_SECONDS)),  # noqa: S311 - spreads load, keeps no secret
        }
        async with self._client.stream(self._path, silence=_SILENCE, **self._of_watch, **query) as chunks:
            async for line in _lines(chunks):
                yield _checked(line, self._path)

    async def _pause(self, why: str, asked: float | None) -> None:
        if why != self._said:  # not at each of many tries
            logger.info("%s: %s; watching it again soon, with pauses", self._path, why)
            self._said = why
        ours = _PAUSES[min(self._failures, len(_PAUSES)) - 1] if self._failures else 0.0
        await asyncio.sleep(max(ours * random.uniform(0.5, 1.0), asked or 0.0))  # noqa: S311 - as above

    def _say_that_it_works(self, news: News) -> None:
        if self._said and news is not Mark.BEGIN:
            logger.info("%s: is watched again", self._path)
            self._said = ""


async def _lines(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line


def _checked(line: bytes, path: str) -> dict[str, Any]:
    """Return the event, unless it is the server's word that the watch is over, or none."""
    try:
        event: dict[str, Any] = json.loads(line)
    except ValueError:
        raise ClusterUnavailable(f"{path}: the watch was cut within an event") from None
    if event["type"] != "ERROR":
        return event
    status = event["object"]
    code, text = status.get("code") or 0, f"{path}: the watch was ended: {status.get('message')}"
    raise ClusterError(text, code=code) if code == HTTPStatus.GONE else ClusterUnavailable(text, code=code)
