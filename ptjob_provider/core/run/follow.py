"""Follow one job to its end: copy its log, end it if it cannot progress, diagnose its failure, inspect its outputs.

This module only has the sequence. `progress` accumulates observations; `kinds`, `history`, `diagnosis` and `outputs`
interpret statuses, pods and outputs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from ptjob_provider.core import diagnosis as diagnoses
from ptjob_provider.core import history
from ptjob_provider.core.backend import CURRENT
from ptjob_provider.core.diagnosis import Diagnosis, Limits
from ptjob_provider.core.diagnosis.last_lines import clip
from ptjob_provider.core.errors import ClusterError, JobTakenOver, OutputsNotVerified
from ptjob_provider.core.history import peak_usage
from ptjob_provider.core.identity import (
    DIAGNOSIS_ANNOTATION,
    OVERDUE_ANNOTATION,
    RECORD_ANNOTATION,
    REPORT_ANNOTATION,
    RESUMED_ANNOTATION,
    USAGE_ANNOTATION,
)
from ptjob_provider.core.outgoing import outgoing
from ptjob_provider.core.outputs.contract import notes, problems, report_text
from ptjob_provider.core.outputs.result import build_result
from ptjob_provider.core.run import cleanup
from ptjob_provider.core.run.api_errors import TIMEOUT, ApiErrors
from ptjob_provider.core.run.judged import delete_judged
from ptjob_provider.core.run.outcome import JobOutcome, Outcome
from ptjob_provider.core.run.progress import JobProgress
from ptjob_provider.core.run.rank0_log import Rank0Log, last_lines, last_lines_of_run, with_last_lines
from ptjob_provider.core.run.submit import inspect_outputs
from ptjob_provider.core.shared import cancelled
from ptjob_provider.core.status import JobPhase, JobStatus

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from ptjob_provider.core.backend import Backend, Observation
    from ptjob_provider.core.identity import JobRef
    from ptjob_provider.core.logs import LogCursor
    from ptjob_provider.core.outputs.contract import OutputReport
    from ptjob_provider.core.run.rank0_log import Sink
    from ptjob_provider.core.run.submit import Submission
    from ptjob_provider.core.run.training_state import TrainingState

logger = logging.getLogger(__name__)

_LONGEST = 600.0
"""Maximum seconds between looks at the clock while nothing changes and nothing is due; the clock may be set."""

_DRAIN_TIMEOUT = 30.0
"""Seconds to wait for the end of rank 0's log after the job's end."""

_STOPPED_DRAIN_TIMEOUT = 10.0
"""Seconds to wait for the end of rank 0's log after this follower has deleted the job; its task is out of time."""

_WAKE_INTERVAL = timedelta(seconds=30)
"""Interval between the changes that make the operator reconcile a job past its own deadline."""

_REASON = 200
"""Maximum characters of an error about an annotation; servers quote the whole address of a webhook."""

_SILENCE_AT_DEADLINE = 60.0
"""Seconds after the deadline for which the server may not answer before the try ends without having stopped the job."""

_LOOK_AT_VIEW = 30.0
"""Seconds between looks at whether the watches have recovered, while a limit waits for that."""

_MOMENT = timedelta(milliseconds=100)
"""Time that the operator has to notice by itself that a job is past its deadline."""


def _seconds() -> float:
    """Return seconds of the loop's clock, which nobody can set, and those in which this machine was suspended."""
    since_boot = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # Linux only
    return asyncio.get_running_loop().time() + time.clock_gettime(since_boot) - time.monotonic()


class FollowOptions(TypedDict, total=False):
    """Options of `follow`, which describes them."""

    deadline: datetime | None
    limits: Limits
    keep_running_pods: bool
    leave_stuck: bool
    hands_off: bool
    curves: bool
    mask: Callable[[str], str]
    state: TrainingState | None


async def follow(
    backend: Backend,
    submission: Submission,
    *,
    sink: Sink,
    cursor: LogCursor | Callable[[], Awaitable[LogCursor | None]] | None = None,
    api_error_timeout: float = TIMEOUT,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    **options: Unpack[FollowOptions],
) -> JobOutcome:
    """Follow the job until it has ended, and return the result; cancelling leaves the job unchanged.

    On return nothing of the job runs, except for the replicas of a deleted job within their grace period and, with
    `leave_stuck`, a job that cannot progress.

    Args:
        backend: the back-end.
        submission: the job.
        sink: takes rank 0's lines, each once, and sentences about the job's progress.
        cursor: cursor of the last line that a sink has received, or a function that looks up this cursor. The log is
            read from there on. The function is called once rank 0 has started: most followed jobs have no log yet.
        api_error_timeout: seconds of uninterrupted refusals of requests about the job after which following is given
            up.
        clock: the wall clock.
        deadline: an aware instant at which the job is deleted and the outcome is TIMED_OUT; None: no deadline. Setting
            the wall clock later does not move it.
        limits: maximum waits after which a job that cannot progress is given up and deleted; by default `Limits()`.
        keep_running_pods: keep the replicas that the operator leaves running after the job's end.
        leave_stuck: do not delete a job that is given up; only the deadline deletes it.
        hands_off: only read: the job is neither changed nor stopped, and its outputs are not inspected.
        curves: include the points of the scalars in the result, not only their last values.
        mask: removes known secrets from program output before it is quoted, shortened or written on the job.
        state: is kept up to date while the job is followed; the outcome has its last `progress`.

    Raises:
        ClusterUnavailable: requests were refused for `api_error_timeout`; the job is unchanged.
        JobTakenOver: the job had to be stopped, but a later try has adopted it; the job is unchanged.
    """
    errors = ApiErrors(str(submission.ref), sink.notice, timeout=api_error_timeout)
    mask, state = options.get("mask", str), options.get("state")
    known = JobProgress(submission=submission, mask=mask)
    if state is not None:
        state.known = known

    async def on_resumed(text: str) -> None:
        await follower.note_resumed(text)

    follower = _Follower(
        backend=backend,
        sink=sink,
        errors=errors,
        log=Rank0Log(
            backend=backend,
            submission=submission,
            sink=sink,
            errors=errors,
            start=cursor,
            mask=mask,
            on_resumed=on_resumed,
            state=state,
        ),
        clock=clock,
        known=known,
        **options,
    )
    return await follower.run()


@dataclass(frozen=True, kw_only=True)
class _End:
    """Reason to end following.

    Attributes:
        outcome: the outcome of following.
        diagnosis: the cause, if the job did not end by itself.
        stop: the job must be deleted.
        leave: the job is given up and left in place.
        open: the server did not let the job be stopped, so the job may go on.
    """

    outcome: Outcome
    diagnosis: Diagnosis | None = None
    stop: bool = False
    leave: bool = False
    open: bool = False

    @property
    def is_ours(self) -> bool:
        """Return whether this is our judgement, not the job's own end."""
        return self.stop or self.leave

    @property
    def why(self) -> str:
        """Return the reason for which the job is deleted; "" if it is not."""
        return str(self.diagnosis.cause) if self.stop and self.diagnosis else ""


@dataclass(kw_only=True)
class _Follower:
    """One call of `follow`.

    Attributes:
        known: the observations so far.
        woken_at: when the operator was last made to reconcile the overdue job.
        kept_wait: the (replica, reason) pairs that the recorded history shows as waiting.
        ordered: the end for which a deletion was requested.
        ending: judges the job again and carries out its end; None as long as nothing demands that.
        overdue_at: when the deadline passes, see `_seconds`; infinite for none.
        silent_since: since when the server has not answered at the deadline, by the loop's clock; None: none.
    """

    backend: Backend
    sink: Sink
    errors: ApiErrors
    log: Rank0Log
    clock: Callable[[], datetime]
    known: JobProgress
    deadline: datetime | None = None
    limits: Limits = field(default_factory=Limits)
    keep_running_pods: bool = False
    leave_stuck: bool = False
    hands_off: bool = False
    curves: bool = False
    mask: Callable[[str], str] = str
    state: TrainingState | None = None
    woken_at: datetime | None = None
    kept_wait: frozenset[tuple[str, str]] = frozenset()
    ordered: _End | None = None
    ending: asyncio.Task[_End | None] | None = None
    silent_since: float | None = None
    overdue_at: float = math.inf

    @property
    def submission(self) -> Submission:
        return self.known.submission

    @property
    def ref(self) -> JobRef:
        return self.submission.ref

    async def run(self) -> JobOutcome:
        if self.deadline is not None and not self.hands_off:
            self.overdue_at = _seconds() + (self.deadline - self.clock()).total_seconds()
        try:
            # The watch stays open, because its cache answers later reads of the job without requests.
            async with contextlib.aclosing(self.errors.stream(self._watch)) as watch:
                end = await self._until_end(watch)
                await self._settle(end)
                await self._measure()
        finally:
            await self.log.end()
        outcome = await self._conclude(end)
        return replace(outcome, progress=self.state.to_dict(outcome)) if self.state is not None else outcome

    def _watch(self) -> AsyncGenerator[Observation, None]:
        return self.backend.watch(self.ref)

    async def _settle(self, end: _End) -> None:
        """Wait until nothing of the job runs, its log is complete and the ends of its pods are recorded."""
        if end.leave or end.open:
            name = self.ref.name
            self.sink.notice(f"{self.ref} is still there: ptjob get {name}; delete it: ptjob delete {name}")
            return
        if end.stop:
            if end.diagnosis is not None:
                self.sink.notice(f"{self.ref} is stopped: {end.diagnosis.failure(self.ref)}")
            self.sink.notice(
                f"{self.ref} was deleted: it would not have ended by itself; only this message remains of it"
            )
        elif not (self.keep_running_pods or self.hands_off or self.known.deleted):
            await cleanup.stop(self.backend, self.ref, self.sink, self.errors)
        if self.known.has_begun:
            await self.log.drain(_STOPPED_DRAIN_TIMEOUT if end.stop else _DRAIN_TIMEOUT)
            if end.outcome is Outcome.FAILED and not end.stop:
                await self._observe_ends()
            if end.outcome is Outcome.SUCCEEDED and self.known.runs:
                await self._observe_others()

    # --- watching -----------------------------------------------------------------------------------------------------

    async def _until_end(self, watch: AsyncGenerator[Observation, None]) -> _End:
        following: asyncio.Task[Observation] | None = None
        try:
            while True:
                following = following or asyncio.ensure_future(anext(watch))
                tasks = {following} if self.ending is None else {following, self.ending}
                await asyncio.wait(tasks, timeout=self._until_due(), return_when=asyncio.FIRST_COMPLETED)
                if following.done():
                    await self._take(following.result())
                    following = None  # frees the observation: ten thousand followers may wait here
                if end := self._carried_out():
                    return end
                await self._report_wait(self.clock())
                if end := self._end_unless_ours():
                    return end
                await self._wake_operator()
        finally:
            await cancelled(*(task for task in (following, self.ending) if task is not None))

    def _end_unless_ours(self) -> _End | None:
        """Return the end of the job; an end that we judge is begun instead, to be carried out beside the watch."""
        end = self._end()
        if end is None or not end.is_ours or self.known.deleted:
            return end
        self.ending = self.ending or asyncio.ensure_future(self._carry_out(end))
        if end.outcome is not Outcome.TIMED_OUT:
            return None
        now = asyncio.get_running_loop().time()
        self.silent_since = now if self.silent_since is None else self.silent_since
        return replace(end, stop=False, open=True) if now >= self.silent_since + _SILENCE_AT_DEADLINE else None

    def _carried_out(self) -> _End | None:
        """Return the end that was carried out; None if there is none, or if the job must not end after all."""
        if self.ending is None or not self.ending.done():
            return None
        end, self.ending, self.silent_since = self.ending.result(), None, None
        return end

    async def _carry_out(self, end: _End) -> _End | None:
        """Judge the job again by its state on the server, and carry out the end; None if the job must not end.

        `end` was judged by the watches' view. The last lines are read first, because a deletion removes them.
        """
        quoted = await with_last_lines(self.backend, self.ref, end.diagnosis, mask=self.mask)
        judged: _End | None = None
        taken_over = False

        async def judge(observation: Observation) -> str:
            nonlocal judged, taken_over
            job = observation.job
            if job is not None:  # else an unanswered deletion may have been ours
                self.ordered = None
            await self._take(observation)
            judged = self._end()
            taken_over = judged is not None and judged.stop and job is not None and self.submission.is_taken_over(job)
            if taken_over:
                return ""
            if judged is None:
                self.sink.notice(f"{self.ref} goes on: the API server shows that it is not as its watches had it")
            elif judged.stop:
                self.ordered = self._quoting(judged, quoted)
            return judged.why if judged is not None else ""

        await self.errors.answer(lambda: delete_judged(self.backend, self.ref, judge))
        if taken_over:
            raise JobTakenOver(f"{self.ref} was not stopped ({end.why}): a later try follows it, and its limits count")
        return self._quoting(judged, quoted) if judged is not None else None

    @staticmethod
    def _quoting(end: _End, quoted: Diagnosis | None) -> _End:
        """Return the end; with the last lines of its replica, if these were read."""
        why = end.diagnosis
        if why is None or quoted is None or why.replica != quoted.replica or not end.is_ours:
            return end
        return replace(end, diagnosis=replace(why, log_tail=why.log_tail or quoted.log_tail))

    async def _report_wait(self, now: datetime) -> None:
        waiting, limits = self.known.waiting, None if self.hands_off else self.limits
        if waiting.is_due(now):
            deadline = None if self.hands_off else self.deadline
            ahead = diagnoses.outlook(self.known.pods, limits=limits, deadline=deadline, least=self.known.least)
            self.sink.notice(f"{self.ref} waits: {waiting.report(ahead)}")
            await self._keep_wait()

    def _until_due(self) -> float:
        """Return the seconds until the next deadline, notice or limit, if no observation comes first.

        While an end is being carried out, limits and a deadline that have passed are not due again.
        """
        now = self.clock()
        instants = [self.known.waiting.due(), self._wakes_operator_at()]
        left = [_LONGEST, self.overdue_at - _seconds()]
        if self.known.record is not None and not self.hands_off:
            is_current = self.backend.view(self.ref).age <= CURRENT
            ends_at = diagnoses.ends_at(self.known.record, now=now, limits=self.limits, least=self.known.least)
            instants.append(ends_at if is_current else None)
            left += [] if is_current else [_LOOK_AT_VIEW]
        if self.silent_since is not None:
            left.append(self.silent_since + _SILENCE_AT_DEADLINE - asyncio.get_running_loop().time())
        left += [(instant - now).total_seconds() for instant in instants if instant is not None]
        return max(0.0, min(seconds for seconds in left if seconds > 0 or self.ending is None))

    async def _take(self, observation: Observation) -> None:
        has_ends = await self._report(observation)
        self.log.submission = self.submission
        if self.known.has_log:
            self.log.begin()
        if has_ends:
            await self._keep_record()

    async def _report(self, observation: Observation) -> bool:
        """Log what is new in the observation, and return whether containers have ended or pods are being removed."""
        now = self.clock()
        self.known.keep_time(now, self.backend.view(self.ref))
        update = self.known.take(observation, now=now)
        if self.state is not None and observation.job is not None:
            self.state.observe(observation.job)
        for text in update.sentences:
            self.sink.notice(text)
        silent = self.known.silent()
        if not silent:
            return update.has_ends
        messages = await asyncio.gather(
            *(last_lines_of_run(self.backend, self.ref, end, mask=self.mask) for end in silent)
        )
        for text in self.known.add_messages(silent, messages):
            self.sink.notice(text)
        return update.has_ends or any(messages)

    async def _keep_record(self) -> None:
        if not self.hands_off:
            record = self.known.counted(self.clock(), self.backend.view(self.ref))
            await self._annotate_with_use({RECORD_ANNOTATION: history.to_text(record)})

    async def _keep_wait(self) -> None:
        """Store the history for `ptjob list` when a pending job waits for other reasons than the stored ones."""
        held = diagnoses.blocked_waits(self.known.pods)
        if self.known.status.phase is JobPhase.PENDING and held != self.kept_wait:
            self.kept_wait = held
            await self._keep_record()

    async def note_resumed(self, text: str) -> None:
        """Log where the attempt went on, and write it on the job for later readers."""
        self.sink.notice(f"{self.ref}: {text}")
        if not self.hands_off:
            await self._annotate({RESUMED_ANNOTATION: text})

    async def _annotate(self, texts: Mapping[str, str]) -> None:
        """Write annotations on the job for later readers; a failure is logged, and following continues."""
        try:
            await self.backend.patch(self.ref, {"metadata": {"annotations": outgoing(texts)}})
        except ClusterError as error:
            why = clip(str(error), _REASON)
            logger.warning("%s: progress notes could not be written to the job (%s); following goes on", self.ref, why)

    async def _annotate_with_use(self, texts: Mapping[str, str]) -> None:
        """Write annotations and the usage so far in one request; make no request if there is nothing to write."""
        await self._measure()
        used = peak_usage.to_text(self.known.used, rank0=self.submission.rank0)
        if all_texts := {**texts, **({USAGE_ANNOTATION: used} if used else {})}:
            await self._annotate(all_texts)

    async def _measure(self) -> None:
        """Add the usage that the back-end has measured; makes no request."""
        self.known.used = peak_usage.together(self.known.used, await self.backend.usage(self.ref))

    async def _wake_operator(self) -> None:
        """Annotate a job that is past its activeDeadlineSeconds, so that the operator reconciles it.

        The operator itself puts the job into a queue that nothing reads (training-operator #3358). Without a change, a
        job that hangs would therefore run on for hours.
        """
        now, due = self.clock(), self._wakes_operator_at()
        if due is not None and now >= due:
            self.woken_at = now
            await self._annotate({OVERDUE_ANNOTATION: now.isoformat(timespec="seconds")})

    def _wakes_operator_at(self) -> datetime | None:
        if self.known.due is None or self.hands_off:
            return None
        return self.known.due + _MOMENT if self.woken_at is None else self.woken_at + _WAKE_INTERVAL

    def _end(self) -> _End | None:
        """Return the end that the observations so far demand; None while the job goes on."""
        phase = self.known.status.phase
        if self.known.deleted:
            return self.ordered or self._end_of_gone(self.known.pods)
        if phase.is_terminal:
            return _End(outcome=Outcome.SUCCEEDED if phase is JobPhase.SUCCEEDED else Outcome.FAILED)
        return None if self.hands_off else self._end_by_us(self.known.pods, self.clock())

    def _end_of_gone(self, record: history.PodHistory) -> _End:
        """Return the end of a deleted job; after the deadline, most likely an earlier follower has deleted the job."""
        ranks = self.submission.ranks
        if _seconds() >= self.overdue_at:
            return _End(outcome=Outcome.TIMED_OUT, diagnosis=diagnoses.timed_out(record, ranks=ranks, is_gone=True))
        return _End(outcome=Outcome.DELETED, diagnosis=diagnoses.deleted(record, ranks=ranks))

    def _end_by_us(self, record: history.PodHistory, now: datetime) -> _End | None:
        if _seconds() >= self.overdue_at:
            why = diagnoses.timed_out(record, ranks=self.submission.ranks, waiting=self.known.waiting.reason)
            return _End(outcome=Outcome.TIMED_OUT, diagnosis=why, stop=True)
        if self.known.record is None:  # nothing was observed yet
            return None
        until = self.known.keep_time(now, self.backend.view(self.ref))
        record, status, ranks = self.known.pods, self.known.status, self.submission.ranks
        why_not = diagnoses.ending(record, status, now=until, limits=self.limits, ranks=ranks, least=self.known.least)
        leaves = self.leave_stuck
        return _End(outcome=Outcome.FAILED, diagnosis=why_not, stop=not leaves, leave=leaves) if why_not else None

    # --- outcome ------------------------------------------------------------------------------------------------------

    async def _conclude(self, end: _End) -> JobOutcome:
        if end.outcome is not Outcome.SUCCEEDED:
            why = self._with_tail(end.diagnosis or await self._diagnose_and_note())
            if end.open:
                why = diagnoses.not_stopped(why, seconds=_SILENCE_AT_DEADLINE)
                return replace(self._failure(end.outcome, why, phase=self.known.status.phase), is_open=True)
            if end.leave:
                return self._failure(end.outcome, why.left_in_place(), phase=self.known.status.phase)
            return self._failure(end.outcome, self._final(why).without_log() if end.stop else why)
        status = self.known.status
        try:
            report = await self._inspect()
        except OutputsNotVerified as error:
            return JobOutcome(outcome=Outcome.UNVERIFIED, status=status, cursor=self.log.cursor, detail=str(error))
        defects = problems(report, self.submission.outputs) if report else ()
        if defects:
            why = diagnoses.outputs_failed(defects, replica=self.submission.rank0, log=self.log.tail)
            return self._failure(Outcome.FAILED, why, report)
        for note in notes(report, self.submission.outputs) if report else ():
            self.sink.notice(f"{self.ref}: {note}")
        last = self.known.pods.last_end(self.submission.rank0)
        if last is not None and last.disruption:
            told = clip(last.disruption, _REASON)
            self.sink.notice(
                f"{self.ref}: rank 0 ended with exit code 0 after it was told to stop ({told}): see whether its "
                "training is complete; a program that stops early must not exit with 0"
            )
        result = self._result(status, report, None)
        return JobOutcome(outcome=Outcome.SUCCEEDED, status=status, result=result, cursor=self.log.cursor)

    async def _observe_ends(self) -> None:
        """Observe how all replicas ended; the end that was observed first may be a consequence of another."""
        await cleanup.settled(self.backend, self.ref, self.errors)
        async with contextlib.aclosing(self.errors.stream(lambda: self.backend.watch(self.ref))) as watch:
            observation = await anext(watch)  # it has pods that are deleted already, unlike a read
        if observation.job is not None:
            await self._take(observation)
            if diagnoses.needs_events(self.known.pods, self.known.status, ranks=self.submission.ranks):
                reasons = await self.errors.answer(lambda: self.backend.reasons(self.ref))
                await self._take(replace(observation, events=[*observation.events, *reasons]))

    async def _observe_others(self) -> None:
        """Observe the replicas that still ran when rank 0 succeeded; some may fail shortly afterwards."""
        before = self.known.pods
        with contextlib.suppress(TimeoutError):
            async with (
                asyncio.timeout(cleanup.SETTLE_TIMEOUT),
                contextlib.aclosing(self.errors.stream(lambda: self.backend.watch(self.ref))) as watch,
            ):
                async for observation in watch:
                    await self._report(observation)
                    if self.keep_running_pods or self.hands_off or not self.known.runs:
                        break
        ranks, after = self.submission.ranks, self.known.pods
        if diagnoses.failed_replicas(after, ranks=ranks) != diagnoses.failed_replicas(before, ranks=ranks):
            await self._keep_record()  # only then: replicas that were merely stopped are not worth a request

    async def _diagnose_and_note(self) -> Diagnosis:
        """Return the diagnosis on the job; if it has none, diagnose it and write the diagnosis on the job.

        Later readers have neither the pods nor their logs.
        """
        if self.known.noted is not None:
            return self.known.noted
        diagnosis = self._with_tail(await self._diagnose())
        if not self.hands_off:
            diagnosis = self._final(diagnosis)
            steps = self.state.annotations() if self.state is not None else {}
            await self._annotate_with_use({DIAGNOSIS_ANNOTATION: diagnosis.to_text(), **steps})
        return diagnosis

    def _final(self, why: Diagnosis) -> Diagnosis:
        """Return the diagnosis; of an attempt that is the last one because of `no_progress_limit`, it says so."""
        text = self.state.no_progress(self.limits.no_progress_limit) if self.state is not None and why.retryable else ""
        return why.without_progress(text) if text else why

    async def _diagnose(self) -> Diagnosis:
        """Diagnose the failure; first read more of the failed replica's log than its termination message has."""
        tails = {self.submission.rank0: self.log.tail}
        record, ranks = self.known.pods, self.submission.ranks
        first = diagnoses.diagnose(record, self.known.status, ranks=ranks, tails=tails)
        if not first.replica or first.replica in tails:
            return first
        tails[first.replica] = await last_lines(self.backend, self.ref, first.replica, mask=self.mask)
        return diagnoses.diagnose(record, self.known.status, ranks=ranks, tails=tails)

    def _failure(
        self,
        outcome: Outcome,
        why: Diagnosis,
        report: OutputReport | None = None,
        *,
        phase: JobPhase = JobPhase.FAILED,
    ) -> JobOutcome:
        why = self._with_tail(why)
        status = replace(self.known.status, phase=phase)
        result = self._result(status, report, why)
        return JobOutcome(outcome=outcome, status=status, diagnosis=why, result=result, cursor=self.log.cursor)

    def _with_tail(self, why: Diagnosis) -> Diagnosis:
        return why if why.log_tail else replace(why, log_tail=self.log.tail, tail_of=self.submission.rank0)

    async def _inspect(self) -> OutputReport | None:
        if self.hands_off:
            return None
        report = await inspect_outputs(self.backend, self.submission, curves=self.curves)
        await self._annotate_with_use({REPORT_ANNOTATION: report_text(report)} if report is not None else {})
        return report

    def _result(self, status: JobStatus, report: OutputReport | None, why: Diagnosis | None) -> dict[str, Any]:
        return build_result(
            self.submission,
            status=status,
            history=self.known.pods,
            report=report,
            diagnosis=why,
            now=self.clock(),
            used=self.known.used,
            resumed=self.state.sentence if self.state is not None else "",
        )
