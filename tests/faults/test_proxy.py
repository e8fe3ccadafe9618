"""Whether the proxy does what a schedule tells it to: refusals of all kinds, and servers that know less of their past.

The server behind it is a stand-in; that a real one answers like this was seen on v1.34.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from api_server_stand_in import stand_in_api_server
from faults.api_server import ApiServer
from faults.fault import Fault, Harm, Lag, Refusals, Restore, Traffic
from faults.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api_server_stand_in import StandInApiServer

PODS = "/api/v1/namespaces/n/pods"
JOBS = "/apis/kubeflow.org/v1/namespaces/n/pytorchjobs"
A_POD = {"metadata": {"name": "p", "uid": "u", "resourceVersion": "70"}}
LISTED = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "80"}, "items": [A_POD]}
CHANGE = json.dumps({"type": "MODIFIED", "object": {"metadata": {"resourceVersion": "90"}}}) + "\n"


@dataclass
class Asking:
    """Somebody who asks through a proxy in front of a stand-in."""

    proxy: FaultProxy
    behind: StandInApiServer
    session: aiohttp.ClientSession
    url: str

    async def __call__(self, target: str, method: str = "GET") -> tuple[int, Any]:
        """Return the code and the JSON of an answer, of a watch the events, of a page the text."""
        async with self.session.request(method, self.url + target) as answer:
            text = await answer.text()
            if answer.content_type == "text/html":
                return answer.status, text
            if "watch=true" in target and answer.ok:
                return answer.status, [json.loads(line) for line in text.splitlines()]
            return answer.status, json.loads(text)


@contextlib.asynccontextmanager
async def asking(*script: Any, faults: tuple[Fault, ...] = ()) -> AsyncIterator[Asking]:
    """Have somebody who asks."""
    timeout = aiohttp.ClientTimeout(total=10)
    async with stand_in_api_server(*script) as behind, aiohttp.ClientSession(timeout=timeout) as session:
        server = ApiServer(url=behind.url, token="t", namespace="n", session=session)  # noqa: S106 - of a stand-in
        async with FaultProxy(server, faults).running() as proxy:
            cluster = json.loads(proxy.config().kube_config or "")["clusters"][0]["cluster"]
            yield Asking(proxy=proxy, behind=behind, session=session, url=cluster["server"])


@contextlib.asynccontextmanager
async def meanwhile(work: Any) -> AsyncIterator[None]:
    """Have this go on."""
    task = asyncio.create_task(work)
    await asyncio.sleep(0.05)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


def behind(ask: Asking, *, seconds: float, forgets: bool = False) -> contextlib.AbstractAsyncContextManager[None]:
    """Have a server that is behind for so long."""
    return meanwhile(ask.proxy.fall_behind(Lag(begins_after=0.0, seconds=seconds, forgets=forgets)))


@pytest.mark.parametrize(("code", "reason"), [(400, "BadRequest"), (401, "Unauthorized"), (403, "Forbidden")])
async def test_for_a_while_everything_but_a_create_is_refused(code: int, reason: str) -> None:
    """With a Status as the server's own, each time; afterwards everything passes."""
    async with asking() as ask:
        refusals = Refusals(begins_after=0.0, seconds=60.0, code=code)
        async with meanwhile(ask.proxy.refuse(refusals)):
            asked = [(PODS, "GET"), (f"{PODS}?watch=true", "GET"), (f"{PODS}/p/log", "GET"), (f"{JOBS}/j", "DELETE")]
            refused = [await ask(target, method) for target, method in asked]
            created = await ask(JOBS, "POST")
    async with asking() as ask_later:
        await ask_later.proxy.refuse(replace(refusals, seconds=0.0))
        after = await ask_later(PODS)

    assert [(status, body["kind"], body["reason"]) for status, body in refused] == [(code, "Status", reason)] * 4
    assert (created[0], after[0]) == (200, 200)
    assert [each.code for each in ask.proxy.asked] == [code] * 4 + [200]


async def test_a_gateway_refuses_with_a_page() -> None:
    """It is no Status: for a while, or for one request."""
    fault = Fault(harm=Harm.REFUSE, traffic=Traffic.WATCH, code=403, page=True)
    async with asking(faults=(fault,)) as ask:
        once = await ask(f"{PODS}?watch=true")
        async with meanwhile(ask.proxy.refuse(Refusals(begins_after=0.0, seconds=60.0, code=400, page=True))):
            longer = await ask(PODS)

    assert once[0] == 403
    assert "<h1>403 Forbidden</h1>" in once[1]
    assert longer[0] == 400
    assert "<h1>400 Bad Request</h1>" in longer[1]


async def test_after_a_restore_a_known_version_is_too_large_until_all_is_listed() -> None:
    """A list is refused with 504, a watch that begins with all there is by an event; then its versions are known."""
    async with asking() as ask:
        await ask.proxy.be_restored(Restore(begins_after=0.0), 100)
        listed, (_, streamed) = (
            await ask(f"{PODS}?resourceVersion=90&resourceVersionMatch=NotOlderThan"),
            await ask(f"{PODS}?watch=true&sendInitialEvents=true&resourceVersion=90"),
        )
        watched = await ask(f"{PODS}?watch=true&resourceVersion=90")
        anew = await ask(PODS)
        after = await ask(f"{PODS}?resourceVersion=110")
        others = await ask(f"{JOBS}?resourceVersion=90")

    assert listed[0] == 504
    assert listed[1]["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert [each["object"]["code"] for each in (*streamed, *watched[1])] == [504, 504]
    assert [anew[0], after[0], others[0]] == [200, 200, 504]


async def test_after_a_restore_all_versions_may_be_smaller() -> None:
    """Those of lists, of objects and in watches; and a version that was told is understood when it comes back."""
    async with asking((200, LISTED), (200, CHANGE)) as ask:
        await ask.proxy.be_restored(Restore(begins_after=0.0, drops=True), 100)
        _, listed = await ask(PODS)
        _, changes = await ask(f"{PODS}?watch=true&resourceVersion=30&labelSelector=")

    assert (listed["metadata"]["resourceVersion"], listed["items"][0]["metadata"]["resourceVersion"]) == ("30", "20")
    assert [each["object"]["metadata"]["resourceVersion"] for each in changes] == ["40"]
    assert "resourceVersion=80" in ask.behind.requests[-1]


async def test_after_a_restore_a_watch_may_be_silent() -> None:
    """A real server says nothing at all: no error, no bookmark."""
    async with asking() as ask:
        await ask.proxy.be_restored(Restore(begins_after=0.0, silent=True), 100)
        async with ask.session.get(f"{ask.url}{PODS}?watch=true&resourceVersion=90") as answer:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await answer.content.readany()

    assert answer.status == 200
    assert not ask.behind.requests


async def test_a_restore_may_pass() -> None:
    """What was too large for a while is known again."""
    async with asking() as ask:
        await ask.proxy.be_restored(Restore(begins_after=0.0, seconds=0.0), 100)

        assert (await ask(f"{PODS}?resourceVersion=90"))[0] == 200


async def test_a_server_that_is_behind_has_no_old_state() -> None:
    """Whoever asks for all there is is told the newest of it: by a list at once, by a watch when it has caught up."""
    async with asking((200, LISTED), (200, CHANGE)) as ask, behind(ask, seconds=0.3):
        listed = await ask(f"{PODS}?limit=500")
        _, events = await ask(f"{PODS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")

    assert listed == (200, LISTED)
    assert len(events) == 1
    assert "sendInitialEvents=true" in ask.behind.requests[-1]


async def test_a_server_that_is_behind_says_nothing_to_a_watch_of_later_changes() -> None:
    """Until it has caught up: then it goes on from the version that was asked for."""
    async with asking((200, CHANGE)) as ask, behind(ask, seconds=0.3):
        _, events = await ask(f"{PODS}?watch=true&resourceVersion=85")

    assert len(events) == 1
    assert ["resourceVersion=85" in each for each in ask.behind.requests] == [True]


async def test_a_server_that_is_behind_may_have_forgotten_all_versions() -> None:
    """Whoever wants to go on is told that the version has expired."""
    async with asking() as ask, behind(ask, seconds=60.0, forgets=True):
        code, status = await ask(f"{PODS}?watch=true&resourceVersion=75")

    assert (code, status["reason"]) == (410, "Expired")


async def test_a_server_that_is_behind_for_long_says_that_the_newest_version_is_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waits a moment for its cache, and gives up in the watch that it has opened."""
    monkeypatch.setattr("faults.history._PATIENCE", 0.1)
    async with asking() as ask, behind(ask, seconds=60.0):
        _, [event] = await ask(f"{PODS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")

    assert event["type"] == "ERROR"
    assert event["object"]["message"] == "Timeout: Too large resource version: 1, current: 0"
