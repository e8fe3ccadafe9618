"""Tries of one step whose jobs are kept in memory: what a try does with its job, without a cluster."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kfp_adapter.conftest import IDS
from kfp_adapter.pod_stand_in import RUN, pod
from ptjob_provider.core.run.resume import ResumedAttempts
from ptjob_provider.kfp.environment import StepEnvironment
from ptjob_provider.kfp.request import Request
from ptjob_provider.kfp.step import Training
from ptjob_provider.kfp.steplog import Masking, StepLog
from ptjob_provider.kfp.termination import Termination

if TYPE_CHECKING:
    from fakes import ScriptedBackend
    from ptjob_provider.core.kubernetes import OwnPod
    from ptjob_provider.core.run.submit import Submission

FIRST, SECOND = pod("uid-a", run=RUN), pod("uid-b", run=RUN)


@dataclass(kw_only=True)
class Try:
    """One try.

    Attributes:
        backend: keeps the jobs.
        pod: that it runs in.
        retry: which of the engine's retries it is. None: the task has none.
        fields: of the request.
        api_error_timeout: seconds for which requests about the job may be refused.
        output: the step's log.
    """

    backend: ScriptedBackend
    pod: OwnPod | None = FIRST
    retry: int | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    api_error_timeout: float = 60.0
    output: io.StringIO = field(default_factory=io.StringIO)

    @property
    def training(self) -> Training:
        """Return what the step does with its job."""
        environment = StepEnvironment(
            backend=self.backend,
            namespace="team",
            instance="pipelines",
            retry=self.retry,
            pod=self.pod,
            api_error_timeout=self.api_error_timeout,
        )
        request = Request.parse({**IDS, "image": "digits", **self.fields})
        return Training(request=request, environment=environment, log=StepLog(Masking(()), self.output))

    async def submit_next(self) -> Submission:
        """Submit or adopt, as a step does that goes by what earlier tries have left."""
        return await self.training.submit(await self.training.earlier_tries(), Termination(self.backend))

    async def submit(self, termination: Termination | None = None) -> Submission:
        """Submit or adopt, as a step does that does not know of earlier tries."""
        return await self.training.submit(ResumedAttempts(None), termination or Termination(self.backend))
