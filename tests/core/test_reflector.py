"""Tests of the reflector: servers that list in pages, or end every watch at once.

A stand-in replaces the servers.
"""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import aclosing
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from api_server_stand_in import stand_in_api_server
from ptjob_provider.core.kubernetes.client import paths
from ptjob_provider.core.kubernetes.client.http import shared_client
from ptjob_provider.core.kubernetes.informer.reflector import Applied, Deleted, Opened, Reflector, Synced

if TYPE_CHECKING:
    from typing import Any

    from api_server_stand_in import StandInApiServer
    from ptjob_provider.core.kubernetes.informer.reflector import Event

pytestmark = pytest.mark.skips_waits

PATIENCE = 60.0
PODS = paths.pods("team")


def page(*uids: str, more: str = "") -> tuple[int, dict[str, Any]]:
    meta = {"resourceVersion": "7", **({"continue": more} if more else {})}
    items = [{"metadata": {"uid": uid, "resourceVersion": "1"}} for uid in uids]
    return 200, {"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": items}


def said(event: Event) -> str:
    match event:
        case Applied(found) | Deleted(found):
            return f"{type(event).__name__} {found['metadata']['uid']}"
        case Synced(missing):
            return " ".join(["Synced", *(f"without {uid}" for uid in sorted(missing))])
    return type(event).__name__


async def events_until(watch: Reflector, server: StandInApiServer, requests: int) -> list[str]:
    """Return all events until the server has received this many requests."""
    messages: list[str] = []

    async def listen() -> None:
        async with aclosing(watch.events()) as events:
            async for each in events:
                if not isinstance(each, Opened):
                    messages.append(said(each))  # noqa: PERF401 - events before the cancellation count

    listening = asyncio.create_task(listen())
    async with asyncio.timeout(PATIENCE):
        while len(server.requests) < requests and not listening.done():  # noqa: ASYNC110 - no notification
            await asyncio.sleep(0.01)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    return messages


async def test_a_list_is_read_page_by_page_and_watched_from_its_version() -> None:
    script = (page("a", more="next"), page("b"))
    async with stand_in_api_server(*script) as server, shared_client(server.config()) as client:
        events = await events_until(Reflector(client, PODS), server, 3)

    assert events == ["Applied a", "Applied b", "Synced"]
    assert "watch=true" not in server.requests[0]
    assert "resourceVersion=7" in server.requests[2]


async def test_a_version_that_the_server_has_forgotten_is_listed_anew() -> None:
    """The watch reports it as an event; objects deleted meanwhile are missing in the list."""
    forgotten = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}
    script = (page("a"), (200, json.dumps(forgotten) + "\n"), page("b"))
    async with stand_in_api_server(*script) as server, shared_client(server.config()) as client:
        events = await events_until(Reflector(client, PODS, known=lambda: ["a", "b"]), server, 4)

    assert events == ["Applied a", "Synced without b", "Applied b", "Synced without a"]
    assert ["watch=true" in line for line in server.requests[:4]] == [False, True, False, True]


@pytest.mark.parametrize("code", [400, 401, 403])
async def test_a_watch_that_is_refused_is_reported_and_opened_again(code: int) -> None:
    """The follower decides how long to tolerate it; a credential is reloaded before it counts as refused."""
    refusal = (code, {"kind": "Status", "code": code, "message": "not now"})
    asked = [refusal, refusal] if code == 401 else [refusal]
    async with stand_in_api_server(page("a"), *asked) as server, shared_client(server.config()) as client:
        events = await events_until(Reflector(client, PODS), server, 2 + len(asked))

    assert events == ["Applied a", "Synced", "RequestRefused"]
    assert "watch=true&allowWatchBookmarks" in server.requests[-1]
    assert "resourceVersion=7" in server.requests[-1]


async def test_a_server_that_ends_every_watch_at_once_is_not_stormed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses grow: after the list and the first watch, each is twice as long as the one before.

    There is no random jitter here, so that a late request takes at most half of the next pause.
    """
    monkeypatch.setattr(random, "uniform", lambda _, longest: longest)
    async with stand_in_api_server(page("a")) as server, shared_client(server.config()) as client:
        await events_until(Reflector(client, PODS), server, 6)

    pauses = [later - earlier for earlier, later in pairwise(server.came_at[:6])]
    least = [0.0, 0.1, 0.25, 0.5, 1.0]  # the watch follows the list immediately
    assert all(pause >= some for pause, some in zip(pauses, least, strict=True)), pauses


STRANGE = [
    "[]\n",
    "7\n",
    '{"type": "ADDED"}\n',
    '{"type": "ADDED", "object": {"metadata": {}}}\n',
    "<html>\n",
    "<html>",
]
CUT = ['{"type": "ADD', '{"type": "ADD\n']


@pytest.mark.parametrize(
    ("text", "last"), [*((text, "RequestRefused") for text in STRANGE), *((text, "Synced") for text in CUT)]
)
async def test_a_text_that_is_no_event_is_a_refusal_unless_it_is_cut(text: str, last: str) -> None:
    """A gateway has sent its own text; the follower is informed, and the request is repeated."""
    script = (page("a"), (200, text))
    async with stand_in_api_server(*script) as server, shared_client(server.config()) as client:
        events = await events_until(Reflector(client, PODS), server, 3)

    assert events[-1] == last


async def test_a_server_that_is_away_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Not on each retry; its return is reported too."""
    caplog.set_level("INFO")
    away = (503, {"kind": "Status", "message": "starting up"})
    async with (
        stand_in_api_server(away, away, away, page("a")) as server,
        shared_client(server.config(attempts=1)) as client,
    ):
        await events_until(Reflector(client, PODS), server, 5)

    said = [record.message for record in caplog.records if record.name.endswith("reflector")]
    assert sum("starting up" in line for line in said) == 1
    assert sum("is watched again" in line for line in said) == 1
