"""Tries of one step with jobs in memory, without a cluster."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kfp_adapter.conftest import IDS
from kfp_adapter.pod_stand_in import RUN, pod
from ptjob_provider.core.run.recall import RecalledAttempts
from ptjob_provider.core.spec import Installation
from ptjob_provider.kfp.environment import StepEnvironment
from ptjob_provider.kfp.request import Request
from ptjob_provider.kfp.step import Training
from ptjob_provider.kfp.steplog import Masking, StepLog
from ptjob_provider.kfp.termination import StepTermination

if TYPE_CHECKING:
    from fakes import ScriptedBackend
    from ptjob_provider.core.kubernetes import OwnPod
    from ptjob_provider.core.run.submit import Submission

FIRST, SECOND = pod("uid-a", run=RUN), pod("uid-b", run=RUN)


@dataclass(kw_only=True)
class Try:
    """One try of the step.

    Attributes:
        backend: Back-end that keeps the jobs.
        pod: Pod that the try runs in.
        retry: Retry index that the engine set. None: the task has no retries.
        fields: Fields of the request.
        api_error_timeout: Seconds for which API errors are tolerated.
        installation: Settings of the installation.
        output: Log of the step.
    """

    backend: ScriptedBackend
    pod: OwnPod | None = FIRST
    retry: int | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    api_error_timeout: float = 60.0
    installation: Installation = field(default_factory=Installation)
    output: io.StringIO = field(default_factory=io.StringIO)

    @property
    def training(self) -> Training:
        """Return the object that submits and follows the step's job."""
        environment = StepEnvironment(
            backend=self.backend,
            namespace="team",
            instance="pipelines",
            retry=self.retry,
            pod=self.pod,
            api_error_timeout=self.api_error_timeout,
            installation=self.installation,
        )
        request = Request.parse({**IDS, "image": "digits", **self.fields})
        return Training(request=request, environment=environment, log=StepLog(Masking(()), self.output))

    async def submit_next(self) -> Submission:
        """Submit or adopt a job, with knowledge of earlier tries."""
        return await self._submit(await self.training.earlier_tries(), StepTermination(self.backend))

    async def submit(self, termination: StepTermination | None = None) -> Submission:
        """Submit or adopt a job, without knowledge of earlier tries."""
        return await self._submit(RecalledAttempts(None), termination or StepTermination(self.backend))

    async def _submit(self, store: RecalledAttempts, termination: StepTermination) -> Submission:
        training = self.training
        return await training.session(store, termination, began=datetime.now(UTC)).submit(training.job)
