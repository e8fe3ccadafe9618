"""Trial of one schedule: the real core runs a task on the cluster while its pods are taken away."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fakes import ListSink, MemoryStore
from kubernetes_backend.endings import evict
from kubernetes_backend.nodes import lose_node
from preempted import program
from preempted.program import Line, farthest, lines_of, starts
from preempted.schedule import By, Moment, Schedule, Way
from ptjob_provider.core import kinds
from ptjob_provider.core.diagnosis import Limits
from ptjob_provider.core.errors import JobFailed
from ptjob_provider.core.identity import attempt_of, is_owned_by
from ptjob_provider.core.run.follow import FollowOptions
from ptjob_provider.core.run.session import Session
from ptjob_provider.core.run.training_state import TrainingState
from ptjob_provider.core.spec.on_finish import OnFinishAction

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from cluster.boot import Cluster
    from preempted.schedule import Strike
    from ptjob_provider.core.identity import Manifest, Owner
    from ptjob_provider.core.kubernetes import KubernetesBackend

LIMIT = 900.0
"""Seconds after which a trial has failed."""

_INTERVAL = 0.2
_LOOKS = 1.0
UNSEEN = "no replica was seen failing"
"""What the failure of a job says whose pods were gone before anybody looked."""

GRACE = "10"
"""Seconds between SIGTERM and SIGKILL of a pod that is deleted."""


@dataclass(kw_only=True)
class Evidence:
    """What was seen of one schedule.

    Attributes:
        seconds: how long it took.
        problem: why the trial did not come to its end; "" if it did.
        result: the job's result; None if there is none.
        record: the program's own record.
        notices: what the task's log says besides the program's lines.
        attempts: attempt of each job that was created, by its uid.
        together: highest number of the task's jobs that had not ended at a time.
        outcomes: for each strike, "attempt" or "replaced": within the job, by its operator.
        unseen: number of ends that were no platform's to the follower, because the one that could see it was killed.
    """

    schedule: Schedule
    seconds: float = 0.0
    problem: str = ""
    result: dict[str, Any] | None = None
    record: list[Line] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    attempts: dict[str, int] = field(default_factory=dict)
    together: int = 0
    outcomes: list[str] = field(default_factory=list)
    unseen: int = 0


class Witness:
    """Looks at all jobs of the namespace again and again."""

    def __init__(self, backend: KubernetesBackend, namespace: str) -> None:
        self._backend, self._namespace = backend, namespace
        self._seen: dict[str, Manifest] = {}
        self._together: list[list[Manifest]] = []

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[Witness]:
        """Look while the context is open."""
        looking = asyncio.create_task(self._look())
        try:
            yield self
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    def attempts(self, owner: Owner) -> dict[str, int]:
        """Return the attempt of each job of this owner, by its uid."""
        return {uid: attempt_of(job) for uid, job in self._seen.items() if is_owned_by(job, owner)}

    def together(self, owner: Owner) -> int:
        """Return the highest number of this owner's jobs that had not ended at a time."""
        return max((sum(is_owned_by(job, owner) for job in jobs) for jobs in self._together), default=0)

    async def _look(self) -> None:
        while True:
            with contextlib.suppress(Exception):  # the webhooks and the API server may be away
                jobs = [
                    job
                    for kind in ("PyTorchJob", "TrainJob")
                    for job in await self._backend.list(kind, self._namespace, {})
                ]
                self._seen |= {job["metadata"]["uid"]: job for job in jobs}
                self._together.append([job for job in jobs if not kinds.read_status(job).phase.is_terminal])
            await asyncio.sleep(_LOOKS)


class Kubelet:
    """Stops the kubelet once for all trials of a group, as soon as each is at its moment."""

    def __init__(self, cluster: Cluster, namespace: str, *, trials: int) -> None:
        self._cluster, self._namespace = cluster, namespace
        self._all_are_there = asyncio.Barrier(trials)

    async def stop(self) -> None:
        """Wait for the other trials; the last one stops the kubelet, and starts it when the pods have to leave."""
        if await self._all_are_there.wait() == 0:
            await asyncio.to_thread(lose_node, self._cluster, self._namespace)

    async def leave(self) -> None:
        """Let the others go on: this trial has failed."""
        await self._all_are_there.abort()


@dataclass(kw_only=True)
class Place:
    """Where trials run.

    Attributes:
        cluster: the cluster.
        namespace: a namespace with the claim and the runtime.
        backend: reaches it with the documented rights.
        volume: the claim's folder on this machine.
        witness: sees all jobs.
    """

    cluster: Cluster
    namespace: str
    backend: KubernetesBackend
    volume: Path
    witness: Witness


class Trial:
    """One trial."""

    def __init__(self, schedule: Schedule, place: Place, kubelet: Kubelet | None) -> None:
        self._schedule, self._place, self._kubelet = schedule, place, kubelet
        self._stem = program.stem(schedule)
        self._folder = place.volume / self._stem
        self._owner = program.owner(schedule)
        self._sink, self._store = ListSink(), MemoryStore()
        self._evidence = Evidence(schedule=schedule)
        self._struck = asyncio.Event()

    async def run(self) -> Evidence:
        """Run the trial; it always returns evidence."""
        began, evidence = time.monotonic(), self._evidence
        working = [asyncio.create_task(self._task()), asyncio.create_task(self._strikes())]
        try:
            async with asyncio.timeout(LIMIT):
                done, _ = await asyncio.wait(working, return_when=asyncio.FIRST_EXCEPTION)
                for each in done:
                    each.result()
        except TimeoutError:
            evidence.problem = f"it was not over after {LIMIT:.0f} s"
        except Exception as error:  # noqa: BLE001 - whatever the product raises is a problem of the trial
            evidence.problem = f"{type(error).__name__}: {error}"
        finally:
            for each in working:
                each.cancel()
            await asyncio.gather(*working, return_exceptions=True)
        if evidence.problem and self._kubelet is not None:
            await self._kubelet.leave()
        await asyncio.sleep(2 * _LOOKS)
        evidence.seconds = time.monotonic() - began
        evidence.record, evidence.notices = self._record(), self._sink.notices
        evidence.attempts = self._place.witness.attempts(self._owner)
        evidence.together = self._place.witness.together(self._owner)
        return evidence

    # --- the task

    async def _task(self) -> None:
        """Follow the task to its end; where the schedule says so, another process goes on in the middle."""
        working = asyncio.create_task(self._one_process())
        after = self._schedule.successor_after
        if after is not None:
            struck = asyncio.create_task(self._struck.wait())
            await asyncio.wait([working, struck], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([working], timeout=after)
            if not working.done():
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
                working = asyncio.create_task(self._with_one_retry())
        try:
            self._evidence.result = await working
        finally:
            working.cancel()

    async def _with_one_retry(self) -> dict[str, Any]:
        """Follow as a task with one retry: nobody has seen the pod's end if its follower was killed just then."""
        try:
            return await self._one_process()
        except JobFailed as error:
            if UNSEEN not in str(error):
                raise
            self._evidence.unseen += 1
            return await self._one_process()

    async def _one_process(self) -> dict[str, Any]:
        count = len(self._schedule.strikes)
        session = Session(
            backend=self._place.backend,
            owner=self._owner,
            store=self._store,
            sink=self._sink,
            on_finish_action=OnFinishAction.DELETE_JOB,
            api_error_timeout=300.0,
            tell=self._sink.notice,
            how_to_follow=FollowOptions(limits=Limits(max_preemptions=count), state=TrainingState()),
        )
        submission, outcome = await session.until_end(program.job(self._schedule, self._place.namespace))
        return await session.finish(submission.ref, outcome, deliver=dict)

    # --- the strikes

    async def _strikes(self) -> None:
        for strike in self._schedule.strikes:
            await self._moment_of(strike)
            before = self._record()
            await self._strike(strike)
            self._struck.set()
            self._evidence.outcomes.append(await self._outcome(strike, before))
        (self._folder / "finish").touch()

    async def _moment_of(self, strike: Strike) -> None:
        """Wait until both ranks of the newest attempt run and rank 0 is farther than ever, at the strike's moment."""
        await self._until(lambda lines: self._newest_run(lines) == {0, 1})
        every = self._schedule.EVERY
        goal = (farthest(self._record()) // every + 1 + strike.later) * every
        if strike.moment is Moment.BEFORE and goal - strike.offset <= farthest(self._record()):
            goal += every
        what, step = {
            Moment.BEFORE: ("step", goal - strike.offset),
            Moment.IN: ("saves", goal),
            Moment.AFTER: ("saved", goal),
        }[strike.moment]
        await self._until(lambda lines: any(line.what == what and line.step >= step for line in lines))

    @staticmethod
    def _newest_run(lines: list[Line]) -> set[int]:
        newest = max((line.attempt for line in lines), default=0)
        return {line.rank for line in lines if line.attempt == newest and line.what == "start"}

    async def _strike(self, strike: Strike) -> None:
        if strike.by is By.KUBELET:
            assert self._kubelet is not None
            await self._kubelet.stop()
            return
        kubectl, namespace = self._place.cluster.kubectl, self._place.namespace
        while (pod := await asyncio.to_thread(self._pod, strike.rank)) is None:  # noqa: ASYNC110 - see `_until`
            await asyncio.sleep(_INTERVAL)
        if strike.by is By.EVICTION:
            await asyncio.to_thread(evict, kubectl, namespace, pod)
            return
        now = datetime.now(UTC).strftime(
            "%Y-%m-%dT%H:%M:%SZ"
        )  # a controller resets a condition that is two minutes old
        condition = {"type": "DisruptionTarget", "status": "True", "reason": strike.reason, "lastTransitionTime": now}
        change = json.dumps({"status": {"conditions": [condition]}})
        where = ("pod", pod, "--namespace", namespace)
        await asyncio.to_thread(kubectl, "patch", *where, "--subresource=status", "--patch", change)
        await asyncio.to_thread(kubectl, "delete", *where, "--wait=false", f"--grace-period={GRACE}")

    def _pod(self, rank: int) -> str | None:
        """Return the name of the running pod of this rank; its status may lag behind its program."""
        of_kind = ("-master-0", "-worker-0") if self._schedule.way is Way.PYTORCHJOB else ("-node-0-0-", "-node-0-1-")
        names = [
            pod["metadata"]["name"]
            for pod in self._place.cluster.kubectl.list("pods", namespace=self._place.namespace)
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]
        found = [name for name in names if name.startswith(f"{self._stem}-") and of_kind[rank] in name]
        return found[0] if len(found) == 1 else None

    async def _outcome(self, strike: Strike, before: list[Line]) -> str:
        """Wait for what comes after a strike.

        Where a job fails at once, its operator may still have made another pod before.
        """
        newest = max(line.attempt for line in before)
        rank = 0 if strike.by is By.KUBELET else strike.rank
        count, fails = len(starts(before, rank=rank)), self._schedule.way is Way.TRAINJOB_AT_ONCE

        def outcome(lines: list[Line]) -> str:
            began = starts(lines, rank=rank)
            if began and began[-1].attempt > newest:
                return "attempt"
            return "replaced" if len(began) > count and not fails else ""

        await self._until(lambda lines: bool(outcome(lines)))
        return outcome(self._record())

    async def _until(self, is_so: Callable[[list[Line]], bool]) -> None:
        while not is_so(self._record()):  # noqa: ASYNC110 - a file on the claim has no event
            await asyncio.sleep(_INTERVAL)

    def _record(self) -> list[Line]:
        try:
            return lines_of((self._folder / "record").read_text())
        except FileNotFoundError:
            return []
