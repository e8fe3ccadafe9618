"""Following a claim when what lies between it and the server fails: seen on the real server, through a proxy."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from cluster_world import Tenant
from faults.fault import Fault, Harm, Outage, Traffic
from faults.proxy import FaultProxy, by_kind
from ptjob_provider.core.kubernetes import KubernetesBackend

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

    from cluster.boot import Cluster
    from faults.api_server import ApiServer
    from ptjob_provider.core.backend import Claim

PATIENCE = 90.0
NOTE = "ptjob.dev/arrived"
NO_STREAMED_LISTS = Fault(harm=Harm.REFUSE, code=400, traffic=Traffic.WATCH)

HARMS = {
    "half-open": [Fault(harm=Harm.STALL, after=0.3, traffic=Traffic.WATCH)],
    "too old in the middle": [Fault(harm=Harm.REFUSE, code=410, after=0.3, seconds=1.5, traffic=Traffic.WATCH)],
    "too old at once": [Fault(harm=Harm.REFUSE, code=410, traffic=Traffic.WATCH)],
    "a credential that has expired": [Fault(harm=Harm.REFUSE, code=401, traffic=Traffic.WATCH)],
    "too many requests": [Fault(harm=Harm.REFUSE, code=429, retry_after=1, traffic=Traffic.WATCH)],
    "cut in an event": [Fault(harm=Harm.TRUNCATE, clean=True, after=0.3, traffic=Traffic.WATCH)],
    "no streamed lists, and a list that was cut": [
        NO_STREAMED_LISTS,
        Fault(harm=Harm.TRUNCATE, clean=True, after=0.001, traffic=Traffic.REQUEST),
    ],
}


@pytest.fixture
async def tenant(cluster: Cluster, server: ApiServer) -> Tenant:
    """Have a claim, and somebody who writes notes on it past the proxy."""
    tenant = Tenant(cluster, server.namespace)
    await note(tenant, "nothing yet")
    return tenant


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("faults", HARMS.values(), ids=HARMS)
async def test_a_note_that_a_broken_watch_missed_is_told(
    server: ApiServer, tenant: Tenant, faults: Sequence[Fault]
) -> None:
    """What was noted while nothing came through is told as soon as something does."""
    async with FaultProxy(server, faults).running() as proxy, following(proxy, server.namespace) as states:
        await anext(states)
        await asyncio.sleep(0.5)

        await note(tenant, "behind the fault")

        await until(states, "behind the fault")
        assert not proxy.to_come


async def test_a_server_that_was_away_is_asked_with_pauses(server: ApiServer, tenant: Tenant) -> None:
    """One watch, opened again at growing intervals; what was noted meanwhile is told."""
    async with FaultProxy(server).running() as proxy, following(proxy, server.namespace) as states:
        await anext(states)
        before = len(proxy.asked)
        noting = asyncio.create_task(note(tenant, "meanwhile"))
        await proxy.go_down(Outage(begins_after=0.0, seconds=6.0))
        asked = len(proxy.asked) - before

        await noting
        await until(states, "meanwhile")

        assert asked <= 2 * 6, by_kind(proxy.asked)


async def note(tenant: Tenant, text: str) -> None:
    """Note something on the claim."""
    await asyncio.to_thread(tenant.annotate, "data", {NOTE: text})


@contextlib.asynccontextmanager
async def following(proxy: FaultProxy, namespace: str) -> AsyncIterator[AsyncGenerator[Claim | None, None]]:
    """Follow the claim through the proxy."""
    backend = KubernetesBackend(proxy.config(timeout=3.0))
    async with asyncio.timeout(PATIENCE), aclosing(backend.watch_claim(namespace, "data")) as states:
        yield states


async def until(states: AsyncGenerator[Claim | None, None], text: str) -> None:
    """Return when that is noted."""
    async for state in states:
        if state is not None and state.annotations.get(NOTE) == text:
            return
    raise AssertionError("the states ended")
