"""LIST, then WATCH from there, for as long as somebody asks: the state of a selection, and every change of it.

A watch is ended by the server after some minutes, by a proxy when it likes, and answers 410 when it has missed too
much; then it is opened again from the last version that was seen, or the selection is listed anew. Bookmarks keep that
version young. What a watch that is listed anew has missed, the difference of the two states tells.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import ClusterError, ClusterUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.client import Client

logger = logging.getLogger(__name__)

_WATCH_SECONDS = (240, 300)
"""How long the server is asked to serve one watch; random, so that many do not end at once."""

_SILENCE = 330.0
"""Seconds without a byte after which a watch is dead: the server should have ended it by itself."""

_PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds between tries to reach a server that does not answer; the last one again and again."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """What is there now, and what has just gone.

    Attributes:
        present: uid → object, of everything selected.
        gone: the last known state of each object that has been deleted since the change before.
    """

    present: Mapping[str, Manifest]
    gone: tuple[Manifest, ...] = ()


async def changes(client: Client, path: str, **selector: str) -> AsyncGenerator[Change, None]:
    """Yield the state of a selection at once, and again after each change, without end.

    Args:
        client: of the cluster.
        path: of the collection.
        selector: `labelSelector`, `fieldSelector`.

    Raises:
        PermissionDenied, ClusterError: the server refuses for good. One that does not answer is asked again and again.
    """
    present: dict[str, Manifest] = {}
    failures = 0
    while True:
        try:
            items, version = await client.list_all(path, **selector)
            failures = 0
            listed = {each["metadata"]["uid"]: each for each in items}
            gone = tuple(each for uid, each in present.items() if uid not in listed)
            present = listed
            yield Change(present=dict(present), gone=gone)
            async for change in _watch(client, path, selector, present, version):
                yield change
        except _TooOld:
            continue
        except ClusterUnavailable as error:
            failures = await _pause(failures, path, error)


class _TooOld(Exception):
    """The version that a watch was to go on from is forgotten: the selection has to be listed anew."""


async def _watch(
    client: Client, path: str, selector: Mapping[str, str], present: dict[str, Manifest], version: str
) -> AsyncGenerator[Change, None]:
    """Yield changes; `present` is kept up to date. Ends with `_TooOld`."""
    failures = 0
    while True:
        try:
            async for event in _events(client, path, selector, version):
                failures = 0
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] in {"ADDED", "MODIFIED", "DELETED"}:
                    yield _applied(event, present)
        except ClusterUnavailable as error:
            failures = await _pause(failures, path, error)


def _applied(event: Manifest, present: dict[str, Manifest]) -> Change:
    seen = event["object"]
    uid = seen["metadata"]["uid"]
    if event["type"] == "DELETED":
        present.pop(uid, None)
        return Change(present=dict(present), gone=(seen,))
    present[uid] = seen
    return Change(present=dict(present))


async def _events(
    client: Client, path: str, selector: Mapping[str, str], version: str
) -> AsyncGenerator[dict[str, Any], None]:
    query = {
        **selector,
        "watch": "true",
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(random.randint(*_WATCH_SECONDS)),  # noqa: S311 - spreads load, keeps no secret
    }
    try:
        async with client.stream(path, silence=_SILENCE, **query) as chunks:
            async for line in _lines(chunks):
                yield _checked(json.loads(line), path)
    except ClusterError as error:
        if error.code == HTTPStatus.GONE:
            raise _TooOld from error
        raise


async def _lines(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line


def _checked(event: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the event unless it is the server's word that the watch is over."""
    if event["type"] != "ERROR":
        return event
    status = event["object"]
    if status.get("code") == HTTPStatus.GONE:
        raise _TooOld
    raise ClusterUnavailable(f"{path}: the watch was ended: {status.get('message')}", code=status.get("code") or 0)


async def _pause(failures: int, path: str, error: ClusterUnavailable) -> int:
    """Wait before the next try; returns how many have failed in a row."""
    logger.info("%s: %s; trying again", path, error)
    await asyncio.sleep(_PAUSES[min(failures, len(_PAUSES) - 1)] * random.uniform(0.5, 1.0))  # noqa: S311 - as above
    return failures + 1
