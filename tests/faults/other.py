"""The same task of another installation in the same namespace: it runs its own job, then sweeps orphaned jobs.

Its requests have no faults. The trial checks that it does not touch the job of the first installation.
"""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING

from faults import program
from faults.evidence import Life, OtherEvidence, described
from faults.proxy import FaultProxy
from ptjob_provider.core.errors import ClusterUnavailable
from ptjob_provider.core.identity import Instance
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.orphans import sweep
from ptjob_provider.core.run.recall import recall
from ptjob_provider.core.run.submit import ensure_submitted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from faults.api_server import ApiServer, Witness
    from faults.schedule import Schedule
    from ptjob_provider.core.run.outcome import JobOutcome

_INTERVAL = 1.0


class OtherInstallation:
    """Task of the other installation.

    Args:
        schedule: schedule of the trial.
        server: server, accessed with the account.
    """

    def __init__(self, schedule: Schedule, server: ApiServer) -> None:
        self._schedule = schedule
        self._owner = program.owner(schedule, instance=program.OTHER_INSTANCE)
        self._namespace = server.namespace
        self._proxy = FaultProxy(server)
        self._life = Life()
        self._conclusion: JobOutcome | None = None
        self._orphans: set[str] = set()
        self._is_over = asyncio.Event()

    async def run(self) -> None:
        """Recall and submit as a pipeline's step does, follow the job, then sweep orphaned jobs until cancelled."""
        async with self._proxy.running():
            backend = KubernetesBackend(self._proxy.config())
            try:
                await self._follow(backend)
            except Exception as error:  # noqa: BLE001 - the judge reports it
                self._life.error = described(error)
            self._is_over.set()
            while not self._life.error:
                await self._sweep(backend)
                await asyncio.sleep(_INTERVAL)

    async def until_over(self) -> None:
        """Return when its job has ended."""
        await self._is_over.wait()

    async def evidence(self, server: ApiServer, witness: Witness) -> OtherEvidence:
        """Return the evidence, and delete the jobs that were created."""
        created = witness.created(self._owner)
        gone = [name for name in created if not await server.has_job(name)]
        for name in created:
            await server.delete_job(name)
        return OtherEvidence(
            life=self._life,
            conclusion=self._conclusion,
            created=created,
            gone=gone,
            orphans=sorted(self._orphans),
            asked=self._proxy.asked,
        )

    async def _follow(self, backend: KubernetesBackend) -> None:
        job = program.job(program.of_other(self._schedule), self._namespace)
        while self._conclusion is None:
            with contextlib.suppress(ClusterUnavailable):
                store = await recall(backend, self._namespace, self._owner, is_repeated=True)
                submission = await ensure_submitted(backend, job, owner=self._owner, store=store)
                self._conclusion = await follow(backend, submission, sink=self._life)

    async def _sweep(self, backend: KubernetesBackend) -> None:
        who, where = Instance(self._owner.instance), self._namespace
        findings = sweep(backend, self._state_of, namespace=where, instance=who, grace=timedelta(0), stop=True)
        with contextlib.suppress(ClusterUnavailable):
            async for finding in findings:
                self._orphans.add(finding.job.ref.name)

    async def _state_of(self, owner: Mapping[str, str]) -> str | None:
        """Return the state of a task instance in an Airflow in which this task has ended and all others run."""
        return "success" if owner == self._owner.ids else "running"
