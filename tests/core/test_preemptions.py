"""Tests of `max_preemptions`: which ends count, when the next attempt begins, and what becomes of the count."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from fakes import ListSink, MemoryStore
from preempting import RAN, Killed, Life, MortalBackend, MortalStore, PreemptingStandIn
from ptjob_provider.core import kinds
from ptjob_provider.core.diagnosis import Cause, Diagnosis, Limits
from ptjob_provider.core.errors import ClusterUnavailable, JobFailed, JobTakenOver, JobTimedOut
from ptjob_provider.core.history import PodHistory
from ptjob_provider.core.identity import ADOPTED_ANNOTATION, Owner, owner_selector
from ptjob_provider.core.run import preemptions
from ptjob_provider.core.run.follow import FollowOptions
from ptjob_provider.core.run.outcome import JobOutcome, Outcome
from ptjob_provider.core.run.preemptions import next_attempt_at, pause_after
from ptjob_provider.core.run.recall import RecalledAttempts, recall
from ptjob_provider.core.run.session import Session
from ptjob_provider.core.run.submit import Submission, SubmitOptions
from ptjob_provider.core.run.training_state import TrainingState
from ptjob_provider.core.spec import TrainingJob
from ptjob_provider.core.spec.on_finish import OnFinishAction
from ptjob_provider.core.status import JobPhase, JobStatus
from recorded import recorded
from rows import each_row
from story import STORIES, read, worlds

if TYPE_CHECKING:
    from ptjob_provider.core.run.attempts import AttemptRecord

JOB = TrainingJob.parse(name="digits", namespace="team", image="digits:1", workers=1)
OWNER = Owner(instance="prod", ids={"task": "train"}, labels={})
NOW = datetime(2026, 11, 20, 10, 0, 0, tzinfo=UTC)
LOST = {"node": "node-1", "cause": "evicted", "seconds_lost": RAN.total_seconds()}

BY_THE_PLATFORM = {
    *("pod-drained", "pod-drained-slowly", "pod-evicted", "pod-preempted"),
    *("pod-node-lost", "pod-status-unknown"),
}
"""The recorded stories of jobs that the platform ended. Not among them, though near: `pod-evicted-own-limit`,
`pod-evicted-volume` (a limit of the pod itself), `pod-deleted`, `pod-deleted-master`, `pod-deleted-gloo`, `job-deleted`
(a person), `pod-sigterm`, `pod-sigkill` (by whom is not known), `job-suspended-in-training` (its queue goes on with
it), `pod-tainted` (it never ran, and was given up here)."""


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preemptions, "_FIRST_PAUSE", 0.0)


def session(backend: Any, store: Any = None, *, limit: int | None = 2, **fields: Any) -> Session:
    """Return a session with `max_preemptions`; `deadline` is an option of following."""
    follow = FollowOptions(limits=Limits(max_preemptions=limit), deadline=fields.pop("deadline", None))
    return Session(
        **{
            "backend": backend,
            "owner": OWNER,
            "store": store or MemoryStore(),
            "sink": ListSink(),
            "on_finish_action": OnFinishAction.KEEP_JOB,
            "api_error_timeout": 60.0,
            "tell": lambda _: None,
            "how_to_submit": SubmitOptions(exact_name=False),
            "how_to_follow": follow,
            **fields,
        }
    )


async def ran(made: Session) -> dict[str, Any]:
    """Run the session to its end and return the job's result."""
    submission, outcome = await made.until_end(JOB)
    return await made.finish(submission.ref, outcome, deliver=dict)


async def preempted(**fields: Any) -> tuple[PreemptingStandIn, Session, Submission, JobOutcome]:
    """Return a session whose first attempt was evicted, as its second one will be, and the first one's outcome."""
    backend = PreemptingStandIn("evicted", "evicted")
    made = session(backend, **fields)
    submission = await made.submit(JOB)
    return backend, made, submission, await made.follow(submission)


def record_of(made: Session) -> AttemptRecord:
    record = made.store.load()
    assert record is not None
    return record


class TestWhichEndsCount:
    @each_row("name", STORIES)
    def test_a_recorded_end_counts_if_the_platform_has_caused_it(self, name: str) -> None:
        found = read(name).diagnosis

        assert (found is not None and found.by_platform) is (name in BY_THE_PLATFORM)

    def test_a_pod_that_vanishes_while_it_is_evicted_was_evicted(self) -> None:
        """The watch shows nothing of the pod after its eviction began; its reason is known by then."""
        told, record = recorded("pod-drained"), PodHistory()
        for look in worlds(told):
            record = kinds.observe(record, told["job"], look.pods, look.events, now=look.at)
            if record.removals:
                break
        (before,) = record.removals
        others = [pod for pod in look.pods if pod["metadata"]["name"] != before.replica]

        (removal,) = kinds.observe(record, told["job"], others, look.events, now=look.at).removals

        assert (removal.disruption, removal.node) == ("EvictionByEvictionAPI: Eviction API: evicting", "node")


class TestWhenTheNextAttemptBegins:
    def test_the_first_follows_at_once_and_later_ones_after_growing_pauses(self, monkeypatch: Any) -> None:
        monkeypatch.undo()

        assert [pause_after(count) for count in range(1, 9)] == [0, 10, 20, 40, 80, 160, 300, 300]
        assert pause_after(100) == 300

    @each_row(
        ("ended", "due"),
        [
            (timedelta(0), timedelta(seconds=10)),
            (timedelta(seconds=-4), timedelta(seconds=6)),
            (timedelta(hours=-1), timedelta(seconds=10, hours=-1)),
            (timedelta(seconds=30), timedelta(seconds=10)),
            (None, timedelta(seconds=10)),
        ],
    )
    def test_a_pause_counts_from_the_end_of_the_job(self, monkeypatch: Any, ended: Any, due: timedelta) -> None:
        """Whoever takes over meanwhile waits for the rest; a server's clock that is ahead makes no pause longer."""
        monkeypatch.undo()
        status = JobStatus(phase=JobPhase.FAILED, finished_at=None if ended is None else NOW + ended)
        outcome = JobOutcome(outcome=Outcome.FAILED, status=status, result={"preemptions": [LOST, LOST]})
        submission = replace(Submission.of(recorded("pytorchjob-failed")), preemptions=(LOST,))

        assert next_attempt_at(submission, outcome, max_preemptions=2, now=NOW) == NOW + due
        assert next_attempt_at(submission, outcome, max_preemptions=1, now=NOW) is None
        assert next_attempt_at(submission, outcome, max_preemptions=None, now=NOW) is None


class TestOneTry:
    async def test_a_training_survives_as_many_preemptions_as_allowed(self) -> None:
        made = session(backend := PreemptingStandIn("evicted", "evicted"))

        result = await ran(made)

        assert (result["attempt"], result["preemptions"]) == (3, [LOST, LOST])
        assert (backend.attempts, backend.together) == ([1, 2, 3], [1, 1, 1])
        earlier = [(each["attempt"], each["cause"]) for each in record_of(made).earlier]
        assert earlier == [(1, "evicted"), (2, "evicted")]

    async def test_the_progress_of_an_attempt_is_not_that_of_the_next_one(self) -> None:
        state, made = TrainingState(), session(PreemptingStandIn("evicted"))
        state.first_step = 7

        await ran(replace(made, how_to_follow={**made.how_to_follow, "state": state}))

        assert (state.first_step, [each["attempt"] for each in state.earlier]) == (None, [1])

    async def test_one_preemption_more_is_a_failure_that_says_so(self) -> None:
        made = session(backend := PreemptingStandIn("evicted", "evicted"), limit=1)
        text = "the platform ended it 2 times, and max_preemptions=1 allows no further attempt"

        with pytest.raises(JobFailed, match=text) as error:
            await ran(made)

        assert error.value.diagnosis.cause is Cause.EVICTED
        assert (backend.attempts, len(record_of(made).preemptions)) == ([1, 2], 2)

    @each_row(("end", "limit"), [("evicted", 0), ("evicted", None), ("own limit", 3), ("fails", 3)])
    async def test_any_other_end_is_reported_as_without_the_option(self, end: str, limit: int | None) -> None:
        backend = PreemptingStandIn(end)

        with pytest.raises(JobFailed) as error:
            await ran(session(backend, limit=limit))

        assert "max_preemptions" not in str(error.value)
        assert backend.created == 1

    async def test_a_log_says_why_another_attempt_follows(self) -> None:
        said: list[str] = []

        await ran(session(PreemptingStandIn("evicted"), tell=said.append))

        (text,) = [each for each in said if "platform" in each]
        assert "was evicted: The node was low on resource: memory." in text
        assert text.endswith("Its next attempt follows at once (preemption 1 of at most 2)")

    @each_row(
        ("ends", "clear_number", "attempt"),
        [(("evicted", "fails", "evicted"), 0, 4), (("evicted", "fails", "evicted", "evicted"), 1, 5)],
    )
    async def test_a_later_try_goes_on_with_the_count_and_a_clear_begins_a_new_one(
        self, ends: tuple[str, ...], clear_number: int, attempt: int
    ) -> None:
        """A failure of the program in between is the orchestrator's to retry; it changes no count."""
        made = session(PreemptingStandIn(*ends))
        with pytest.raises(JobFailed):
            await ran(made)

        result = await ran(replace(made, how_to_submit=SubmitOptions(clear_number=clear_number)))

        assert (result["attempt"], len(result["preemptions"])) == (attempt, 2)

    @each_row("seconds", [-1.0, 2.0])
    async def test_a_deadline_before_the_next_attempt_ends_the_try(self, monkeypatch: Any, seconds: float) -> None:
        """Nothing is waited for, because the try has one deadline for all its attempts."""
        monkeypatch.setattr(preemptions, "_FIRST_PAUSE", 3.0)
        backend = PreemptingStandIn("evicted", "evicted")
        made = session(backend, deadline=datetime.now(UTC) + timedelta(seconds=seconds))
        submission = await made.submit(JOB)
        backend.end_job(submission.ref)
        if seconds > 0:
            submission = (await made.after(submission, await made.follow(submission))) or await made.submit(JOB)
            assert isinstance(submission, Submission)

        outcome = await made.after(submission, await replace(made, how_to_follow={}).follow(submission))

        assert outcome is not None
        with pytest.raises(JobTimedOut, match=r"was evicted.*its deadline passes before the next attempt begins"):
            await made.finish(submission.ref, outcome, deliver=dict)
        assert (record_of(made).ended, len(record_of(made).preemptions)) == (True, 1 + (seconds > 0))


class TestAttemptsWithoutANewStep:
    """Rank 0 of the first attempt writes the steps 1 to 30, and those of later attempts as many as are given."""

    @staticmethod
    def session(ends: tuple[str, ...], *last: int, limit: int = 2, store: Any = None, **options: Any) -> Session:
        """Return a session with `no_progress_limit` and five allowed preemptions."""
        backend = PreemptingStandIn(*ends, steps=[range(1, 31), *(range(20, each + 1) for each in last)])
        limits = Limits(max_preemptions=5, no_progress_limit=limit)
        follow = FollowOptions(limits=limits, state=TrainingState())
        return session(backend, store, how_to_follow=follow, **options)

    async def test_attempts_without_a_new_step_end_in_a_final_failure_that_says_so(self) -> None:
        made = self.session(("evicted",) * 5, 25, 30)
        text = r"was evicted.*; 2 attempts in a row reached no step beyond 30, to which attempt 1 had come"

        with pytest.raises(JobFailed, match=text) as error:
            await ran(made)

        why = error.value.diagnosis
        assert (why.cause, why.retryable, why.passes) == (Cause.NO_PROGRESS, False, False)
        assert "docs/how-to/survive-preemption.md" in str(error.value)
        (job,) = made.backend.jobs.values()  # type: ignore[attr-defined]
        assert (made.backend.created, Diagnosis.stored_in(job)) == (3, why.bounded())  # type: ignore[attr-defined]

    @each_row(
        ("last", "limit", "created"),
        [
            ((25, 31, 30, 32), 2, 6),  # a new step now and then
            ((25, 25, 25, 25), 0, 6),
            ((25, 10, 10, 25), 2, 5),  # two attempts without steps do not count
            ((25, 25, 25, 25), 3, 4),
        ],
    )
    async def test_attempts_that_reach_a_new_step_or_are_too_few_go_on(
        self, last: tuple[int, ...], limit: int, created: int
    ) -> None:
        made = self.session(("evicted",) * 5, *last, limit=limit)

        with contextlib.suppress(JobFailed):
            await ran(made)

        assert made.backend.created == created  # type: ignore[attr-defined]

    @each_row("has_store", [True, False])
    async def test_the_orchestrators_own_retries_are_counted_as_well(self, *, has_store: bool) -> None:
        """A next try without a store finds the earlier attempts on their jobs, and reports the last one again."""
        made, causes = self.session(("fails",) * 5, 25, 30), []

        for _ in range(3 if has_store else 4):
            store = made.store if has_store else await recall(made.backend, "team", OWNER, is_repeated=True)
            with pytest.raises(JobFailed) as error:
                await ran(replace(made, store=store, how_to_follow={**made.how_to_follow, "state": TrainingState()}))
            causes.append(error.value.diagnosis.cause)

        again = [] if has_store else [Cause.NO_PROGRESS]
        assert causes == [Cause.EXIT_CODE, Cause.EXIT_CODE, Cause.NO_PROGRESS, *again]
        assert made.backend.created == 3  # type: ignore[attr-defined]

    async def test_a_cleared_task_begins_anew(self) -> None:
        """Its training begins at step 0, and is not compared with what was before."""
        store, ends = MemoryStore(), ("fails", "evicted")
        made = self.session(ends, 25, 25, limit=1, store=store)
        with pytest.raises(JobFailed):
            await ran(made)

        made.how_to_follow["state"] = TrainingState()
        result = await ran(replace(made, how_to_submit=SubmitOptions(clear_number=1)))

        assert (result["phase"], result["attempt"]) == ("Succeeded", 3)


class TestWhatTheServerShows:
    """A restored database may have an old event of a job's end; what the server has counts."""

    @each_row("phase", ["Running", "Succeeded"])
    async def test_a_job_that_has_not_failed_gets_no_other_beside_it(self, phase: str) -> None:
        backend, made, submission, outcome = await preempted()
        (job,) = backend.jobs.values()
        job["status"]["conditions"][0]["type"] = phase

        with pytest.raises(ClusterUnavailable, match="was seen to fail, and the API server does not show that"):
            await made.after(submission, outcome)

        assert (record_of(made).ended, len(backend.jobs)) == (False, 1)

    @each_row("is_gone", [True, False])
    async def test_a_job_that_is_gone_or_being_deleted_has_ended(self, *, is_gone: bool) -> None:
        """Its time to live is over, or it was given up here, and finalizers hold its object."""
        backend, made, submission, outcome = await preempted()
        (job,) = backend.jobs.values()
        del job["status"]
        job["metadata"]["deletionTimestamp"] = "2026-11-20T10:00:00Z"
        if is_gone:
            backend.jobs.clear()

        try:
            ended_anyhow = await made.after(submission, outcome)
        except ClusterUnavailable as error:
            pytest.fail(f"it counts as one that goes on: {error}")

        assert ended_anyhow is None

    async def test_a_job_that_was_given_up_and_left_gets_no_other_beside_it(self) -> None:
        _, made, submission, outcome = await preempted()
        left = replace(outcome, status=replace(outcome.status, phase=JobPhase.RUNNING))

        assert await made.after(submission, left) is left

    async def test_a_server_has_a_minute_though_a_refusal_is_final(self) -> None:
        """`api_error_timeout` 0 is about refusals; an answer takes its time."""
        backend, made, submission, outcome = await preempted(api_error_timeout=0.0)
        read = backend.read

        async def slowly(ref: Any) -> Any:
            await asyncio.sleep(0.1)
            return await read(ref)

        backend.read = slowly  # type: ignore[method-assign]

        assert await made.after(submission, outcome) is None

    async def test_a_server_that_does_not_answer_leaves_the_attempt_open(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ptjob_provider.core.run.session._LEAST", 0.01)
        backend, made, submission, outcome = await preempted(api_error_timeout=0.01)
        backend.server = "silent"

        with pytest.raises(ClusterUnavailable, match="did not say within"):
            await made.after(submission, outcome)

        assert (record_of(made).ended, backend.created) == (False, 1)

    async def test_a_job_that_a_later_try_follows_is_left_to_it(self) -> None:
        backend, frozen, submission, outcome = await preempted()
        (job,) = backend.jobs.values()
        job["metadata"]["annotations"][ADOPTED_ANNOTATION] = "a later try"

        with pytest.raises(JobTakenOver):
            await frozen.after(submission, outcome)

        assert not record_of(frozen).ended

    async def test_an_end_that_is_reported_again_is_counted_once(self) -> None:
        """The process was killed after it had made the next attempt, and its orchestrator repeats the call."""
        backend, made, submission, outcome = await preempted()
        assert await made.after(submission, outcome) is None
        await made.submit(JOB)

        assert await made.after(submission, outcome) is None

        result = await ran(made)
        assert (result["attempt"], len(result["preemptions"]), backend.together) == (3, 2, [1, 1, 1])


class TestWithoutAStore:
    async def test_the_count_is_read_from_the_jobs_themselves(self) -> None:
        """A step of a pipeline whose pod was evicted as well, during the pause after the second end."""
        backend = PreemptingStandIn("evicted", "evicted")
        made = session(backend, RecalledAttempts(None))
        for _ in range(2):
            submission = await made.submit(JOB)
            assert await made.after(submission, await made.follow(submission)) is None

        store = await recall(backend, "team", OWNER, is_repeated=True)  # type: ignore[arg-type]

        record = store.load()
        assert record is not None
        assert (record.ended, list(record.preemptions)) == (True, [LOST, LOST])
        assert len(await backend.list("PyTorchJob", "team", owner_selector(OWNER))) == 1


def kill_points() -> int:
    """Return the number of effects of a try whose job is preempted twice and succeeds then."""
    life, backend = Life(), PreemptingStandIn("evicted", "evicted")
    asyncio.run(ran(session(MortalBackend(backend, life), MortalStore(MemoryStore(), life))))
    return life.had


class TestAProcessThatIsKilled:
    """Every effect of a try, on the server and in the store, may be its last one: before it, and right after it."""

    @pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
    @pytest.mark.parametrize("has_store", [True, False], ids=["store", "recalled"])
    def test_no_attempt_is_lost_or_doubled_wherever_it_is_killed(self, *, is_done: bool, has_store: bool) -> None:
        points = kill_points()
        for point in range(points):
            backend, shared = PreemptingStandIn("evicted", "evicted"), MemoryStore()
            first = Life(point, is_done=is_done)
            with pytest.raises(Killed):
                asyncio.run(ran(session(MortalBackend(backend, first), MortalStore(shared, first))))
            if not has_store:
                recalled = asyncio.run(recall(backend, "team", OWNER, is_repeated=True))  # type: ignore[arg-type]
                shared = MemoryStore(recalled.load())

            result = asyncio.run(ran(session(backend, shared)))

            assert (point, set(backend.together), backend.ends) == (point, {1}, [])
            if has_store:
                assert (point, backend.attempts, len(result["preemptions"])) == (point, [1, 2, 3], 2)
        assert points > 20
