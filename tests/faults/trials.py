"""Run many schedules, several at a time, in one namespace of the cluster."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any
from unittest import mock

from cluster.pki import ADMIN
from cluster.tenants import namespace_in, service_account
from faults import program
from faults.api_server import ApiServer, Servers, Witness
from faults.schedule import Schedule
from faults.trial import Trial
from ptjob_provider.core.kubernetes.informer import reflector
from ptjob_provider.core.kubernetes.logs import follower
from ptjob_provider.core.run.submit import Submission
from rbac import rules

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from cluster.boot import Cluster
    from faults.evidence import Evidence

AT_A_TIME = 8
SILENCE = 6.0
"""Seconds without a byte after which a stream counts as dead; minutes outside tests. Longer than the time after which
the end of a watch is no failure: otherwise a quiet watch would be reopened at growing intervals."""


@contextlib.contextmanager
def impatience() -> Iterator[None]:
    """Detect half-open streams within a trial: the product waits for minutes, and a trial takes seconds."""
    with (
        mock.patch.object(reflector, "_SILENCE", SILENCE),
        mock.patch.object(reflector, "_DOUBT", SILENCE / 2),
        mock.patch.object(follower, "_SILENCE", SILENCE),
    ):
        yield


def kubeconfig_of(cluster: Cluster, namespace: str) -> dict[str, Any]:
    """Return the kubeconfig of an account with the documented rights in the namespace."""
    found: dict[str, Any] = json.loads(service_account(cluster, namespace, rules()).read_text())
    return found


@contextlib.asynccontextmanager
async def place(cluster: Cluster) -> AsyncIterator[Servers]:
    """Yield a new namespace, accessed with an account that has the documented rights and with the administrator."""
    pki = cluster.layout.home / "pki"
    certificate = pki / f"{ADMIN.file}.crt", pki / f"{ADMIN.file}.key"
    with namespace_in(cluster) as namespace:
        kubeconfig = kubeconfig_of(cluster, namespace)
        async with (
            ApiServer.reached(kubeconfig, namespace) as account,
            ApiServer.reached(kubeconfig, namespace, certificate=certificate) as administrator,
        ):
            yield Servers(account=account, administrator=administrator)


async def tried(cluster: Cluster, seeds: Iterable[int]) -> AsyncIterator[Evidence]:
    """Yield the evidence of each schedule as it ends."""
    turn = asyncio.Semaphore(AT_A_TIME)

    async def one(seed: int) -> Evidence:
        async with turn:
            return await Trial(Schedule.draw(seed), servers, witness, neighbour).run()

    with impatience():
        async with place(cluster) as servers, Witness(servers.account).watching() as witness:
            ref = await servers.account.create_job(program.neighbour(servers.account.namespace))
            neighbour = Submission.of(await servers.account.job(ref.name))
            tasks = [asyncio.create_task(one(seed)) for seed in seeds]
            try:
                for done in asyncio.as_completed(tasks):
                    yield await done
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
