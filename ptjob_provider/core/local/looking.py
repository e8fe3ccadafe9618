"""Poller of the files of all jobs that are followed on an event loop; a `hub.Source`."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ptjob_provider.core.hub import Mailbox
from ptjob_provider.core.local.lost import is_supervised
from ptjob_provider.core.local.state import JobState

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

    from ptjob_provider.core.local.files import JobFiles

_INTERVAL = 0.2


class FollowedJob:
    """One job's state for its followers."""

    def __init__(self, files: JobFiles) -> None:
        self.files = files
        self.box = Mailbox()
        self._state = JobState(files)

    async def states(self) -> AsyncGenerator[JobState, None]:
        """Yield the current state, and again after each change."""
        self._state.refresh()
        while True:
            seen = self.box.version
            yield self._state
            await self.box.until(lambda seen=seen: self.box.version > seen)  # type: ignore[misc]

    def look(self) -> bool:
        """Read changes and signal them; return whether there were any."""
        has_changed = self._state.refresh()
        if has_changed:
            self.box.ring()
        return has_changed


class Looking:
    """Polls the files of every followed job.

    Args:
        settle: performs due actions on a job without a supervisor: its end, the end of its TTL.
    """

    def __init__(self, settle: Callable[[JobFiles], None]) -> None:
        self._settle = settle
        self._jobs: set[FollowedJob] = set()

    @contextmanager
    def following(self, files: JobFiles) -> Iterator[FollowedJob]:
        """Subscribe to a job's state."""
        job = FollowedJob(files)
        self._jobs.add(job)
        try:
            yield job
        finally:
            self._jobs.discard(job)

    async def run(self) -> None:
        """See `hub.Source`."""
        while True:
            for job in tuple(self._jobs):
                await self._look_at(job)
            await asyncio.sleep(_INTERVAL)

    def fail(self, error: BaseException) -> None:
        """See `hub.Source`."""
        for job in self._jobs:
            job.box.fail(error)

    async def _look_at(self, job: FollowedJob) -> None:
        try:
            is_settled_by_us = not is_supervised(job.files)  # first: its last writes are read below
            if not job.look() and is_settled_by_us:  # its followers have read everything: its TTL may be over
                await asyncio.to_thread(self._settle, job.files)
        except OSError as error:
            self._jobs.discard(job)
            job.box.fail(error)
