"""Trial of one schedule: the real core follows a real job through the proxy until the job's outcome is known."""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from fakes import MemoryStore
from faults import program
from faults.evidence import Evidence, Life, described
from faults.other import OtherInstallation
from faults.proxy import FaultProxy
from faults.schedule import Schedule, Story
from ptjob_provider.core.diagnosis import Limits
from ptjob_provider.core.errors import ClusterUnavailable
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.rank0_log import catch_up
from ptjob_provider.core.run.submit import ensure_submitted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from faults.api_server import ApiServer, Servers, Witness
    from faults.fault import Blindness, Lag, Restore, Revocation
    from faults.schedule import Stop
    from ptjob_provider.core.run.outcome import JobOutcome
    from ptjob_provider.core.run.submit import Submission

LIMIT = 400.0
"""Seconds after which a trial has failed."""

MOST_LIVES = 10
REQUEST_TIMEOUT = 2.0
"""Seconds until the client's requests time out: short, so that it notices a stall within a trial."""

_LEFT_TIMEOUT = 60.0
_INTERVAL = 0.3
_MOMENT = 0.05
ROLE = "ptjob"
"""Name of the namespace's Role with the documented rights."""


class Trial:
    """One trial. Its followers run one after the other; each starts from the cursor that the one before it kept."""

    def __init__(self, schedule: Schedule, servers: Servers, witness: Witness, neighbour: Submission) -> None:
        self._schedule = schedule
        self._server = servers.account
        self._administrator = servers.administrator
        self._user = program.stem(schedule)
        self._witness = witness
        self._neighbour = neighbour
        self._proxy = FaultProxy(self._reached_as, schedule.faults)
        self._other = OtherInstallation(schedule, self._server)
        self._backend = KubernetesBackend(self._proxy.config(timeout=REQUEST_TIMEOUT))
        self._store = MemoryStore()
        self._lives = [Life()]
        self._written = 0
        self._neighbours_error = ""

    async def run(self) -> Evidence:
        """Run the trial; it always returns evidence and deletes its jobs."""
        began = time.monotonic()
        conclusion, problem = None, ""
        async with self._with_rights(), self._proxy.running(), self._meanwhile():
            try:
                async with asyncio.timeout(LIMIT):
                    conclusion = await self._to_the_end()
                    if self._schedule.other_after is not None:
                        await self._other.until_over()
            except TimeoutError:
                problem = f"it was not over after {LIMIT:.0f} s"
            except Exception as error:  # noqa: BLE001 - the trial looks for errors that the product must not raise
                problem = described(error)
        return await self._evidence(time.monotonic() - began, conclusion, problem)

    # --- submit and follow

    async def _to_the_end(self) -> JobOutcome:
        submission = await self._submitted()
        stops = iter(self._schedule.stops)
        async with self._somebody_else(submission):
            while len(self._lives) <= MOST_LIVES:
                stop = next(stops, None)
                conclusion = await self._live(submission, stop)
                if conclusion is not None:
                    return await self._caught_up(submission, conclusion)
                submission = await self._handed_over(submission, stop)
        raise AssertionError(f"{MOST_LIVES} followers did not see the end")

    async def _submitted(self) -> Submission:
        """Submit as a task that is killed now and then, and retried."""
        for patience in self._schedule.submit_stops:
            with contextlib.suppress(TimeoutError, ClusterUnavailable):
                async with asyncio.timeout(patience):
                    return await self._submit()
        while True:
            with contextlib.suppress(ClusterUnavailable):
                return await self._submit()

    async def _submit(self) -> Submission:
        job, owner = program.job(self._schedule, self._server.namespace), program.owner(self._schedule)
        return await ensure_submitted(self._backend, job, owner=owner, store=self._store)

    async def _live(self, submission: Submission, stop: Stop | None) -> JobOutcome | None:
        """Follow until the job's end or the stop; return None if the follower was stopped or failed."""
        life = self._lives[-1]
        following = asyncio.create_task(
            follow(
                self._backend,
                submission,
                sink=life,
                cursor=life.began_with,
                deadline=self._deadline(submission),
                limits=Limits(start_timeout=program.START_TIMEOUT) if self._schedule.blindness else Limits(),
            )
        )
        done, _ = await asyncio.wait({following}, timeout=stop.seconds if stop else None)
        if not done:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following
            return None
        if error := following.exception():
            life.error = described(error)
            return None
        return following.result()

    async def _handed_over(self, submission: Submission, stop: Stop | None) -> Submission:
        self._lives.append(self._lives[-1].next(keeps_cursor=stop is None or stop.keeps_cursor))
        await asyncio.sleep(stop.pause if stop else 1.0)
        return await self._submitted() if stop and stop.resubmits else submission

    async def _caught_up(self, submission: Submission, conclusion: JobOutcome) -> JobOutcome:
        """Read the rest of the log, as a task that resumes with the outcome does."""
        await catch_up(self._backend, submission, sink=self._lives[-1], cursor=conclusion.cursor)
        return conclusion

    def _deadline(self, submission: Submission) -> datetime | None:
        if self._schedule.story is not Story.HANGS:
            return None
        began = datetime.fromisoformat(submission.first_started_at).astimezone(UTC)
        return began + timedelta(seconds=program.DEADLINE)

    # --- concurrent faults and other users

    @contextlib.asynccontextmanager
    async def _meanwhile(self) -> AsyncIterator[None]:
        schedule, proxy, other_after = self._schedule, self._proxy, self._schedule.other_after
        once_there: list[tuple[Any, Any]] = [
            *((each, proxy.refuse) for each in schedule.refusals),
            (schedule.lag, self._lag),
            (schedule.restore, self._restore),
            (schedule.revocation, self._revoke),
            (schedule.blindness, self._blind),
        ]
        works = [
            *(proxy.go_down(outage) for outage in schedule.outages),
            *([self._look_at_neighbour()] if schedule.has_neighbour else []),
            *(self._once_there(what.begins_after, partial(do, what)) for what, do in once_there if what is not None),
            *([self._once_there(other_after, self._other.run)] if other_after is not None else []),
        ]
        async with _beside(*works):
            yield

    async def _once_there(self, seconds: float, do: Callable[[], Awaitable[None]]) -> None:
        """Call `do` this many seconds after the job was created."""
        while not self._witness.created(program.owner(self._schedule)):  # noqa: ASYNC110 - the witness has no event to wait for
            await asyncio.sleep(_MOMENT)
        await asyncio.sleep(seconds)
        await do()

    async def _lag(self, lag: Lag) -> None:
        await self._proxy.fall_behind(lag)

    async def _restore(self, restore: Restore) -> None:
        await self._proxy.be_restored(restore, await self._server.version())

    async def _blind(self, blindness: Blindness) -> None:
        """Let the job start while it cannot be watched."""
        blind = asyncio.ensure_future(self._proxy.blind(blindness))
        await asyncio.sleep(1)
        await self._administrator.create_secret(program.secret(self._schedule))
        await blind

    async def _revoke(self, revocation: Revocation) -> None:
        await self._administrator.revoke(self._user)
        try:
            if revocation.resets:
                self._proxy.reset_all()
            await asyncio.sleep(revocation.seconds)
        finally:
            await self._administrator.grant(self._user, ROLE)

    @contextlib.asynccontextmanager
    async def _with_rights(self) -> AsyncIterator[None]:
        """Grant rights that can be revoked, with the trial's own RoleBinding."""
        if self._schedule.revocation is None:
            yield
            return
        await self._administrator.grant(self._user, ROLE)
        await self._reached_as.until_allowed()
        try:
            yield
        finally:
            await self._administrator.revoke(self._user)

    @property
    def _reached_as(self) -> ApiServer:
        """Return access to the server: in a trial with a revocation as its own user, else as the shared account."""
        return self._administrator.acting_as(self._user) if self._schedule.revocation else self._server

    async def _look_at_neighbour(self) -> None:
        try:
            await follow(self._backend, self._neighbour, sink=Life(), hands_off=True)
        except Exception as error:  # noqa: BLE001 - as above
            self._neighbours_error = described(error)

    @contextlib.asynccontextmanager
    async def _somebody_else(self, submission: Submission) -> AsyncIterator[None]:
        """Delete the job as another user would, once it has written half of its lines."""
        deletes = self._schedule.story is Story.IS_DELETED
        async with _beside(*([self._delete_in_the_middle(submission)] if deletes else [])):
            yield

    async def _delete_in_the_middle(self, submission: Submission) -> None:
        while self._written < self._schedule.lines // 2:
            await asyncio.sleep(_INTERVAL)
            self._written = len(await self._server.log(submission.rank0))
        await self._server.delete_job(submission.ref.name)

    # --- evidence

    async def _evidence(self, seconds: float, conclusion: JobOutcome | None, problem: str) -> Evidence:
        created = self._witness.created(program.owner(self._schedule))
        left = await self._left(created) if conclusion else []
        gone = [name for name in created if not await self._server.has_job(name)]
        for name in created:
            await self._server.delete_job(name)
        has_other = self._schedule.other_after is not None
        return Evidence(
            schedule=self._schedule,
            seconds=seconds,
            lives=self._lives,
            conclusion=conclusion,
            created=created,
            left=left,
            written=self._written,
            asked=self._proxy.asked,
            gone=gone,
            neighbours_error=self._neighbours_error,
            other=await self._other.evidence(self._server, self._witness) if has_other else None,
            problem=problem,
        )

    async def _left(self, created: list[str]) -> list[str]:
        """Return the pods that still run when all have had time to end."""
        waited = 0.0
        while (left := await self._running(created)) and waited < _LEFT_TIMEOUT:
            await asyncio.sleep(_INTERVAL)
            waited += _INTERVAL
        return left

    async def _running(self, created: list[str]) -> list[str]:
        pods = [pod for name in created for pod in await self._server.pods(PYTORCHJOB.pod_selector(name))]
        return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] not in {"Succeeded", "Failed"}]


@contextlib.asynccontextmanager
async def _beside(*works: object) -> AsyncIterator[None]:
    """Run coroutines in the background; at the end cancel the unfinished ones and raise the error of a failed one."""
    tasks = [asyncio.ensure_future(work) for work in works]  # type: ignore[arg-type]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
