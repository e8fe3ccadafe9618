"""Submits and follows jobs for `submit`, `run`, `follow` and `train`, with the same session as an Airflow task.

A job that the command line submits belongs to that one call: a name in use is refused, and no existing job is replaced.
A job with another owner is only watched, unless the user adopts it.
"""

from __future__ import annotations

import asyncio
import getpass
import secrets
import signal
import sys
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from ptjob_provider.cli.live_line import LiveLine
from ptjob_provider.cli.output import (
    EXIT_TERMINATED,
    EXIT_USAGE,
    Failure,
    cancel_on,
    emit_rows,
    notice,
    run,
    say_logged,
)
from ptjob_provider.core.diagnosis import Limits
from ptjob_provider.core.diagnosis.causes import TAIL_LINES
from ptjob_provider.core.diagnosis.notices import QUOTED
from ptjob_provider.core.errors import JobAlreadyExists
from ptjob_provider.core.identity import JobRef, Owner, owner_in
from ptjob_provider.core.logs import MAX_PIECE, last_state
from ptjob_provider.core.run.cleanup import delete_if_unfinished
from ptjob_provider.core.run.follow import FollowOptions
from ptjob_provider.core.run.outcome import Outcome, deadline_after
from ptjob_provider.core.run.recall import RecalledAttempts
from ptjob_provider.core.run.session import Session
from ptjob_provider.core.run.submit import Submission, SubmitOptions
from ptjob_provider.core.run.training_state import TrainingState
from ptjob_provider.core.spec.on_finish import OnFinishAction

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator

    from ptjob_provider.cli.target import Target
    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.logs import LogLine
    from ptjob_provider.core.run.outcome import JobOutcome
    from ptjob_provider.core.spec import TrainingJob
    from ptjob_provider.core.training_progress import LinePattern

T = TypeVar("T")

INSTANCE = "ptjob"
"""Distinguishes jobs of the command line from those of orchestrators in the same namespace."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Options for the end of the job, and for the end of the command.

    Attributes:
        timeout: seconds after which the job is stopped; None: no limit.
        limits: when a job that makes no progress is stopped.
        leave_stuck: do not delete a job that does not start or fails again and again.
        on_finish_action: what to do with the job's object.
        keep_running_pods: keep the replicas that still run after the job's end.
        delete_on_interrupt: Ctrl-C and SIGTERM delete the job.
        output: `json` or `yaml` prints the result, `name` the job's name, and the log goes to stderr.
        progress: pattern of lines that say how far the training is; None: those that are built in.
        no_progress: draw no line with the progress below the log.
    """

    timeout: timedelta | None = None
    limits: Limits = field(default_factory=Limits)
    leave_stuck: bool = False
    on_finish_action: str = OnFinishAction.KEEP_JOB
    keep_running_pods: bool = False
    delete_on_interrupt: bool = False
    output: str | None = None
    progress: LinePattern | None = None
    no_progress: bool = False


class TerminalSink:
    """Shows rank 0's lines and notices about the job, each as soon as it is known.

    Args:
        lines_to_stderr: keep stdout for the result.
        live: the line with the progress below the log. Where it is shown, a line of the log is printed at its end.

    Attributes:
        shown: the last printed lines, including those that a notice quotes.
    """

    def __init__(self, *, lines_to_stderr: bool, live: LiveLine) -> None:
        self._to_stderr = lines_to_stderr
        self._live = live
        self._begun = ""
        self.shown: deque[str] = deque(maxlen=2 * TAIL_LINES)

    def line(self, line: LogLine) -> None:
        """Print one line."""
        if line.notice:
            self.tell(line.text)
            return
        self._live.take(line)
        with self._live.above():
            if self._live.is_shown and (sys.stderr if self._to_stderr else sys.stdout).isatty():
                self._begun = last_state(self._begun + line.text)
                if not line.continues or len(self._begun) > MAX_PIECE:
                    self._show_begun()
            else:
                say_logged(line.text, nl=not line.continues, err=self._to_stderr)
        self.shown.append(line.text)

    def tell(self, text: str) -> None:
        """Print one message."""
        with self._live.above():
            notice(text)

    def notice(self, text: str) -> None:
        """Print one notice, and the lines that it quotes."""
        self.tell(text)
        self.shown += (line.removeprefix(QUOTED) for line in text.splitlines())

    def close(self) -> None:
        """Remove the line with the progress, and print what was begun."""
        self._live.close()
        if self._begun:
            self._show_begun()

    def _show_begun(self) -> None:
        say_logged(self._begun, err=self._to_stderr)
        self._begun = ""

    async def room(self) -> None:
        """Return at once: a slow terminal blocks the reader by itself."""


@dataclass(kw_only=True)
class Following:
    """Submits or finds one job, and follows it from a terminal.

    Attributes:
        ref: the job, once it is known.
        exact_name: whether a new job's name is used unchanged. None: if the job has a name.
        between_attempts: whether this job was ended by the platform, and the next attempt's is not known yet.
    """

    target: Target
    ending: Ending
    exact_name: bool | None = None
    ref: JobRef | None = None
    between_attempts: bool = False

    @cached_property
    def backend(self) -> Backend:
        """The back-end on which the job runs."""
        return self.target.open()

    @cached_property
    def sink(self) -> TerminalSink:
        """The log on the terminal."""
        live = LiveLine(self.ending.progress, wanted=not self.ending.no_progress)
        return TerminalSink(lines_to_stderr=self.ending.output is not None, live=live)

    async def submit_and_follow(self, job: TrainingJob) -> dict[str, Any]:
        """Submit the job, wait for its end, and return its result."""
        with self._submitting(job, tell=notice) as (session, named):
            submission, outcome = await session.until_end(named)
        return await self._finish(session, submission.ref, outcome)

    async def submit(self, job: TrainingJob) -> Submission:
        """Submit the job and its TensorBoard.

        Raises:
            JobAlreadyExists: the name is in use; for a `generateName`, the generated names are.
        """
        with self._submitting(job) as (session, named):
            return await session.submit(named)

    @contextmanager
    def _submitting(
        self, job: TrainingJob, *, tell: Callable[[str], None] = lambda _: None
    ) -> Iterator[tuple[Session, TrainingJob]]:
        """Yield a session to submit the job with, and the job in its namespace.

        `ref` is set as soon as the job exists, so that an interrupt before the TensorBoard is created can name the job.
        """
        named = job if job.named_namespace else job.in_namespace(self.target.namespace)
        exact_name = has_literal_name(job) if self.exact_name is None else self.exact_name

        async def known(submission: Submission) -> None:
            self.ref, self.between_attempts = (ref := submission.ref), False
            tell(f"{ref} was submitted: {ref.kind}, uid {ref.uid}")

        async def preempted(*_: object) -> None:
            self.between_attempts = True

        limits = self.ending.limits.with_default_preemptions(is_wanted=job.checkpoints is not None)
        session = self._session(since=datetime.now(UTC), limits=limits)
        how = SubmitOptions(exact_name=exact_name, installation=self.target.settings.installation())
        try:
            yield replace(session, on_known=known, on_preempted=preempted, how_to_submit=how), named
        except JobAlreadyExists as error:
            if not exact_name:
                raise
            name = job.name or ((job.manifest or {}).get("metadata") or {}).get("name")
            words = self.target.words_for(str(named.named_namespace), str(name))
            raise JobAlreadyExists(
                f"{named.named_namespace}/{name} exists already; look at it: ptjob get {words}; remove it: "
                f"ptjob delete {words}; or choose another name",
                code=error.code,
                reason=error.reason,
            ) from error

    async def find_and_follow(self, name: str, *, adopt: bool) -> None:
        """Wait for the end of an existing job; a job that the command line did not create is only watched."""
        job = await self.target.find(self.backend, name)
        hands_off = not adopt and owner_in(job).instance != INSTANCE
        timeout = None if self.ending.timeout is None else "--timeout"
        flag = "--delete-on-interrupt" if self.ending.delete_on_interrupt else timeout
        if hands_off and flag:
            whose = f"{JobRef.of(job)}, which something else made"
            raise Failure(f"{flag} would delete {whose}; --adopt takes charge of it", EXIT_USAGE)
        await self.follow(Submission.of(job), hands_off=hands_off)

    async def interrupted(self) -> None:
        """Keep or delete the job after an interrupt, as requested."""
        self.sink.close()
        if self.ref is None:
            notice("interrupted before it was known whether the job exists: ptjob list")
            return
        name = self.target.words_for(self.ref.namespace, self.ref.name)
        if self.between_attempts:
            ended = f"interrupted between two attempts: {self.ref} has ended"
            notice(f"{ended}, and no other attempt follows, unless there is one already: ptjob get {name}")
        elif not self.ending.delete_on_interrupt:
            notice(f"{self.ref} is left as it is; follow it: ptjob follow {name}; stop it: ptjob delete {name}")
        elif await delete_if_unfinished(self.backend, self.ref):
            notice(f"{self.ref} was deleted: interrupted")
        else:
            notice(f"{self.ref} had ended, or is gone; look at it: ptjob get {name}")

    async def follow(self, submission: Submission, *, hands_off: bool) -> dict[str, Any]:
        """Show rank 0's log until the job's end, and return its result.

        Raises:
            JobFailed, JobTimedOut, JobDeleted, OutputsNotVerified: see `raise_for`.
        """
        self.ref = submission.ref
        session = self._session(since=datetime.fromisoformat(submission.first_started_at), hands_off=hands_off)
        return await self._finish(session, self.ref, await session.follow(submission))

    async def _finish(self, session: Session, ref: JobRef, outcome: JobOutcome) -> dict[str, Any]:
        self.sink.close()
        if self.ending.output and outcome.result is not None:
            emit_rows([ref.name], dict(outcome.result), self.ending.output)
        if outcome.outcome is Outcome.UNVERIFIED and not session.hands_off:
            notice(f"{ref} is kept; look again: ptjob follow {self.target.words_for(ref.namespace, ref.name)}")
        return await session.finish(ref, outcome, deliver=dict, shown=self.sink.shown)

    def until_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine; Ctrl-C and SIGTERM stop following, and keep or delete the job as requested."""
        try:
            return run(guarded(work, self.interrupted), cancelled=EXIT_TERMINATED)
        finally:
            self.sink.close()

    def _session(self, *, since: datetime, limits: Limits | None = None, hands_off: bool = False) -> Session:
        """Return a session whose owner is this call, so that no other call adopts the job that it creates.

        Args:
            since: the start of the time limit.
            limits: the limits of a job that this call submits; None: those of a job that it only follows.
            hands_off: only watch the job.
        """
        ending = self.ending
        return Session(
            backend=self.backend,
            owner=owner_of_call(secrets.token_hex(6)),
            store=RecalledAttempts(None),
            sink=self.sink,
            on_finish_action=OnFinishAction.parse(ending.on_finish_action),
            api_error_timeout=self.target.settings.api_error_timeout(),
            tell=self.sink.tell,
            how_to_follow=FollowOptions(
                deadline=deadline_after(since, ending.timeout),
                limits=limits or ending.limits,
                keep_running_pods=ending.keep_running_pods,
                leave_stuck=ending.leave_stuck,
                hands_off=hands_off,
                state=TrainingState(ending.progress),
            ),
        )


def has_literal_name(job: TrainingJob) -> bool:
    """Return whether the job has the object's whole name; a manifest's `generateName` is only a prefix."""
    meta = (job.manifest or {}).get("metadata") or {}
    return job.name is not None or bool(meta.get("name"))


def owner_of_call(submission: str) -> Owner:
    """Return the owner of a job that this call submits: the user, and the id of the submission."""
    try:
        person = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a user without a name
        person = "unknown"
    return Owner(instance=INSTANCE, ids={"submitted_by": person, "submission": submission}, labels={})


async def guarded(work: Coroutine[Any, Any, T], on_stop: Callable[[], Awaitable[None]]) -> T:
    """Await the coroutine, and `on_stop()` if it is cancelled, also by SIGTERM."""
    cancel_on(signal.SIGTERM)
    try:
        return await work
    except asyncio.CancelledError:
        await on_stop()
        raise
