"""Jobs of one kind on the tests' cluster, submitted and followed as a task does, with the documented rights."""

from __future__ import annotations

import asyncio
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.images import INIT_IMAGE
from cluster.tenants import service_account
from cluster_world import PATIENCE, config_of
from fakes import ListSink, MemoryStore
from ptjob_provider.core.code.folder import with_packed_folder
from ptjob_provider.core.diagnosis import Limits
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.submit import ensure_submitted
from ptjob_provider.core.spec import TrainingJob
from rbac import rules_of_kinds
from recorded import OWNER

if TYPE_CHECKING:
    from cluster.boot import Cluster
    from ptjob_provider.core.run.outcome import JobOutcome
    from ptjob_provider.core.run.submit import Submission


class Lab:
    """A namespace of the cluster, reached by a service account with the documented rights."""

    def __init__(self, cluster: Cluster, namespace: str, *, kind: str = "TrainJob") -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.kind = kind
        self.config = config_of(service_account(cluster, namespace, rules_of_kinds()))
        self.backend = KubernetesBackend(self.config)
        self.sink = ListSink()

    async def submit(self, script: str = "true", **fields: Any) -> Submission:
        """Submit a job whose replicas run this shell script, unless another command is given."""
        command = ["sh", "-c", textwrap.dedent(script)]
        given = {"name": "digits", "kind": self.kind, "image": INIT_IMAGE, "command": command, "workers": 2}
        job = TrainingJob.parse(**{**given, "namespace": self.namespace, **fields})
        packed = with_packed_folder(job, beside=Path())
        return await ensure_submitted(self.backend, packed, owner=OWNER, store=MemoryStore())

    async def follow(self, submission: Submission, **how: Any) -> JobOutcome:
        """Follow the job to its end."""
        async with asyncio.timeout(PATIENCE):
            return await follow(self.backend, submission, sink=self.sink, **how)

    async def run(self, script: str, *, limits: Limits | None = None, **fields: Any) -> JobOutcome:
        """Submit a job and follow it to its end."""
        return await self.follow(await self.submit(script, **fields), limits=limits or Limits())

    @property
    def lines(self) -> list[str]:
        """Rank 0's lines."""
        return self.sink.lines
