"""Test the shared watch against the real server when connections fail, through a proxy."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from cluster.images import INIT_IMAGE
from faults.api_server import ANNOTATION
from faults.fault import Fault, Harm, Outage, Traffic
from faults.proxy import FaultProxy, by_kind
from ptjob_provider.core.identity import Owner
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.run.api_errors import ApiErrors
from ptjob_provider.core.spec import TrainingJob
from ptjob_provider.core.status import JobPhase
from worlds import has_ended

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from faults.api_server import ApiServer
    from faults.proxy import Asked
    from ptjob_provider.core.backend import Observation
    from ptjob_provider.core.identity import JobRef

logger = logging.getLogger(__name__)

PATIENCE = 600.0
FOLLOWERS = 10
OPEN = 4
"""Number of watches for all followers of a namespace: its jobs and their pods, and the first follower's own two."""


async def test_a_server_that_asks_to_be_left_alone_is_left_alone(server: ApiServer) -> None:
    """After a 429 with Retry-After, the same watch is opened again only when that time is over."""
    ref = await a_job(server)
    busy = Fault(harm=Harm.REFUSE, code=429, retry_after=3, traffic=Traffic.WATCH)
    faults = (busy, replace(busy, number=1))
    async with watched(server, ref, *faults) as (proxy, watch):
        await server.annotate_job(ref.name, "after a while")
        await seen(watch, text_is("after a while"), "a change after the server was busy")
        refused = [asked for asked in proxy.asked if asked.fault and asked.fault.code == 429]
        assert len(refused) == 2, by_kind(proxy.asked)

        pauses = [await again_after(proxy, asked) for asked in refused]

        assert min(pauses) >= 3


async def test_a_failure_that_one_follower_missed_reaches_the_next_one(server: ApiServer) -> None:
    """The first follower leaves while the reason of the failure, which is reported with it, is still being read."""
    ref = await a_job(server, "exit 1")
    late = [Fault(harm=Harm.DELAY, seconds=2.0, traffic=Traffic.REQUEST, number=number) for number in range(20)]
    async with FaultProxy(server, late).running() as proxy:
        async with following(proxy, ref) as watch:
            await anext(watch)
            await until(server, ref, lambda phase: phase.is_terminal)
            await asyncio.sleep(0.3)

        async with following(proxy, ref) as watch:
            await seen(watch, has_ended, "the failure of which the first follower left too early to hear")


async def test_ten_followers_come_back_as_one(server: ApiServer) -> None:
    """After an outage only the shared watches are opened again, not one per follower."""
    refs = [await a_job(server) for _ in range(FOLLOWERS)]
    async with FaultProxy(server).running() as proxy, ten(proxy, refs) as watches:
        await proxy.go_down(Outage(begins_after=0.0, seconds=3.0))
        back = len(proxy.asked)

        for ref in refs:
            await server.annotate_job(ref.name, "back")
        await asyncio.gather(*(seen(watch, text_is("back"), "a change after the outage") for watch in watches))

        assert len(proxy.asked) - back <= OPEN, by_kind(proxy.asked[back:])


async def test_a_server_that_is_away_is_not_stormed(server: ApiServer) -> None:
    """During an outage the shared watches retry at growing intervals, however many followers there are.

    At least 0.1, 0.25, 0.5, 1, 2.5 and 5 s pass between two tries of one watch: seven tries in 12 s. Each may count
    twice: the HTTP library itself repeats a request once after a reset.
    """
    refs = [await a_job(server) for _ in range(FOLLOWERS)]
    async with FaultProxy(server).running() as proxy, ten(proxy, refs) as watches:
        before = len(proxy.asked)

        await proxy.go_down(Outage(begins_after=0.0, seconds=12.0))

        asked = proxy.asked[before:]
        assert OPEN <= len(asked) <= 2 * 7 * OPEN, by_kind(asked)
        await server.annotate_job(refs[0].name, "back")
        await seen(watches[0], text_is("back"), "a change after the outage")


async def a_job(server: ApiServer, script: str = "") -> JobRef:
    """Create a job that runs the script; without a script, create a suspended job and wait until it has that phase."""
    what = {"image": INIT_IMAGE, "command": ["sh", "-c", script], "suspend": not script, "shared_memory": "1Mi"}
    job = TrainingJob.parse(name="j", namespace=server.namespace, **what)
    owner = Owner(instance="faults", ids={"task_id": secrets.token_hex(8)}, labels={})
    ref = await server.create_job(PYTORCHJOB.render(job, owner=owner, attempt=1).manifest)
    if not script:  # for a job without a status the product also requests events
        await until(server, ref, lambda phase: phase is JobPhase.SUSPENDED)
    return ref


@contextlib.asynccontextmanager
async def watched(
    server: ApiServer, ref: JobRef, *faults: Fault
) -> AsyncIterator[tuple[FaultProxy, AsyncGenerator[Observation, None]]]:
    """Watch the job through a proxy with these faults, after the first observation; at the end all have happened."""
    async with FaultProxy(server, faults).running() as proxy, following(proxy, ref) as watch:
        await anext(watch)
        yield proxy, watch
        assert not proxy.to_come


async def until(server: ApiServer, ref: JobRef, holds: Callable[[JobPhase], bool]) -> None:
    """Return when `holds` is true for the job's phase."""
    async with asyncio.timeout(PATIENCE):
        while not holds(PYTORCHJOB.read_status(await server.job(ref.name)).phase):  # noqa: ASYNC110 - polls the server
            await asyncio.sleep(0.1)


def of(proxy: FaultProxy, traffic: Traffic) -> list[Asked]:
    """Return the requests of this kind of traffic."""
    return [asked for asked in proxy.asked if asked.traffic is traffic]


async def until_asked(proxy: FaultProxy, traffic: Traffic, number: int) -> None:
    """Return when this many requests of this kind have arrived: watches open concurrently, in no fixed order."""
    async with asyncio.timeout(PATIENCE / 2):
        while len(of(proxy, traffic)) < number:  # noqa: ASYNC110 - the proxy has no event to wait for
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def following(proxy: FaultProxy, ref: JobRef) -> AsyncIterator[AsyncGenerator[Observation, None]]:
    """Watch the job through the proxy as `follow` does: a refused watch is retried."""
    backend, errors = KubernetesBackend(proxy.config(timeout=3.0)), ApiErrors(str(ref), logger.info)
    async with asyncio.timeout(PATIENCE), aclosing(errors.stream(lambda: backend.watch(ref))) as watch:
        yield watch


@contextlib.asynccontextmanager
async def ten(proxy: FaultProxy, refs: list[JobRef]) -> AsyncIterator[list[AsyncGenerator[Observation, None]]]:
    """Watch all these jobs, each with its own back-end, and wait until all watches are open."""
    async with contextlib.AsyncExitStack() as stack:
        watches = [await stack.enter_async_context(following(proxy, ref)) for ref in refs]
        for watch in watches:
            await anext(watch)
        await until_asked(proxy, Traffic.WATCH, OPEN)
        yield watches


async def seen(
    watch: AsyncGenerator[Observation, None], until: Callable[[Observation], bool], what: str
) -> Observation:
    """Return the first observation for which `until` is true."""
    try:
        async with asyncio.timeout(PATIENCE / 2):
            async for observation in watch:
                if until(observation):
                    return observation
    except TimeoutError:
        raise AssertionError(f"waited {PATIENCE / 2:.0f} s in vain for {what}") from None
    raise AssertionError(f"the watch ended before {what}")


def text_is(text: str) -> Callable[[Observation], bool]:
    """Return a condition that is true when the job's annotation is this text."""
    return lambda observation: (
        observation.job is not None and (observation.job["metadata"].get("annotations") or {}).get(ANNOTATION) == text
    )


async def again_after(proxy: FaultProxy, refused: Asked) -> float:
    """Wait until the same request is repeated, and return the seconds in between."""
    async with asyncio.timeout(PATIENCE / 2):
        while True:
            for asked in proxy.asked:
                if asked.at > refused.at and (asked.resource, asked.traffic) == (refused.resource, refused.traffic):
                    return asked.at - refused.at
            await asyncio.sleep(0.1)
