"""A real follower with the real informer, whose wall clock goes with the clock of its loop unless a test sets it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from fakes import ListSink
from ptjob_provider.core.diagnosis import Limits
from ptjob_provider.core.kubernetes import ClusterConfig, KubernetesBackend
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.submit import Submission
from stand_in_watches import job

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.run.outcome import JobOutcome

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
START = Limits(start_timeout=1200.0)


class Following:
    """A follower of the job in the background."""

    def __init__(
        self,
        *,
        found: Manifest | None = None,
        began: float | None = None,
        step: timedelta = timedelta(0),
        **options: Any,
    ) -> None:
        self.sink = ListSink()
        self.began = asyncio.get_running_loop().time() if began is None else began
        self.step = step
        backend = KubernetesBackend(ClusterConfig())
        submission = Submission.of(found or job("digits"))
        following = follow(backend, submission, sink=self.sink, clock=self.now, **({"limits": START} | options))
        self.task = asyncio.create_task(following)

    def now(self) -> datetime:
        return NOON + self.step + timedelta(seconds=asyncio.get_running_loop().time() - self.began)

    async def outcome(self) -> JobOutcome:
        async with asyncio.timeout(10 * 3600):
            return await self.task
