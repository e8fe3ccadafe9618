"""Tests of the table of `core/run/submit.py`, row by row: in all cases one job exists afterwards, and it is ours."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from core.test_follow import elastic
from core.test_follow import job as followed_job
from fakes import BackendWithTakenNames, MemoryStore, ScriptedBackend, finished
from ptjob_provider.core import kinds
from ptjob_provider.core.diagnosis import Cause, Diagnosis
from ptjob_provider.core.errors import (
    ClusterUnavailable,
    InvalidSpec,
    JobAlreadyExists,
    JobNotFound,
    KindNotServed,
    PermissionDenied,
)
from ptjob_provider.core.identity import (
    CODE_ANNOTATION,
    DIAGNOSIS_ANNOTATION,
    EARLIER_ANNOTATION,
    PREEMPTIONS_ANNOTATION,
    REPORTED_ANNOTATION,
    JobRef,
    Owner,
)
from ptjob_provider.core.outgoing import outgoing
from ptjob_provider.core.run.attempts import EARLIER_SIZE, MAX_EARLIER, AttemptRecord, earlier_in, with_own
from ptjob_provider.core.run.cleanup import stop_and_wait
from ptjob_provider.core.run.submit import Submission, conclude_attempt, deliver_attempt, ensure_submitted
from ptjob_provider.core.spec import Installation, TrainingJob
from rows import each_row

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest

pytestmark = pytest.mark.skips_waits

OWNER = Owner(instance="prod", ids={"dag_id": "d", "task_id": "t", "run_id": "r", "map_index": "-1"}, labels={})
STRANGER = Owner(instance="staging", ids=OWNER.ids, labels={})
JOB = TrainingJob.parse(name="digits", namespace="team", image="digits:1", workers=2, gpus=1)


async def submit(
    backend: ScriptedBackend, store: MemoryStore, *, job: TrainingJob = JOB, owner: Owner = OWNER, **how: Any
) -> Submission:
    return await ensure_submitted(backend, job, owner=owner, store=store, **how)


async def test_a_submission_without_an_earlier_job_is_attempt_one() -> None:
    """The job is created, and the record is saved before and after."""
    backend, store = ScriptedBackend(), MemoryStore()

    submission = await submit(backend, store)

    assert (submission.attempt, submission.adopted, backend.created) == (1, False, 1)
    assert backend.secrets == {}  # without credentials the right for Secrets is not needed
    assert [record.uid for record in store.history] == [None, "uid-1"]
    assert submission.rank0.endswith("-master-0")
    assert sum(submission.gpus_of.values()) == 2


async def test_a_job_that_somebody_deletes_at_once_is_reported_as_deleted() -> None:
    backend = ScriptedBackend()
    backend.get_error = JobNotFound("there is no such job")

    with pytest.raises(JobNotFound, match="was deleted as soon as it was created"):
        await submit(backend, MemoryStore())


class Between:
    """The possible events for the first try's job before the second try."""

    def __init__(self, backend: ScriptedBackend, store: MemoryStore, ref: JobRef) -> None:
        self.backend, self.store, self.key = backend, store, (ref.namespace, ref.name)

    def finished(self) -> None:
        self.backend.jobs[self.key] = finished(self.backend.jobs[self.key])

    def deleted(self) -> None:
        del self.backend.jobs[self.key]

    def made_again(self) -> None:
        self.backend.jobs[self.key]["metadata"]["uid"] = "uid-of-a-backup"

    def store_lost(self) -> None:
        self.store = MemoryStore()

    def killed_after_the_create(self) -> None:
        self.store.record = self.store.history[0]

    def concluded(self) -> None:
        conclude_attempt(self.store)

    def delivered(self) -> None:
        deliver_attempt(self.store, by_try=1)


@each_row(
    ("between", "how", "outcome"),
    [  # what happened; the second try; attempt, adopted, jobs created, jobs stopped, whether outputs must be newer now
        ("", {}, (1, True, 1, [], False)),  # a restarted worker does not train twice
        ("finished", {}, (1, True, 1, [], False)),  # what was achieved without a follower is kept
        ("store_lost", {}, (1, True, 1, [], False)),  # a lost store must not train twice
        ("store_lost finished", {}, (2, False, 2, [], True)),  # a recreated DAG run trains again
        ("store_lost finished", {"exact_name": True}, (2, False, 2, ["uid-1"], True)),
        ("killed_after_the_create finished", {}, (1, True, 1, [], False)),
        ("deleted", {}, (2, False, 2, [], False)),  # its uid is on record and no job has it
        ("made_again", {}, (2, False, 2, ["uid-of-a-backup"], False)),  # such as one restored from a backup
        ("concluded", {}, (2, False, 2, ["uid-1"], False)),  # outputs may be as old as the first attempt
        ("concluded", {"exact_name": True}, (2, False, 2, ["uid-1"], False)),
        ("", {"clear_number": 1}, (2, False, 2, ["uid-1"], True)),  # a cleared task trains again
        ("delivered finished", {"tries_before_clear": 1}, (2, False, 2, ["uid-1"], True)),  # cleared all the same
        ("delivered finished", {}, (1, True, 1, [], False)),
        ("delivered", {"tries_before_clear": 1}, (1, True, 1, [], False)),  # a live job is never stopped for that
        ("", {"owner": STRANGER}, (2, False, 2, [], False)),  # the record came with a copied database
    ],
)
async def test_a_second_try_adopts_the_job_of_the_first_or_starts_the_next_attempt(
    between: str, how: dict[str, Any], outcome: tuple[int, bool, int, list[str], bool]
) -> None:
    """Adopts it, or starts the next attempt once the stopped job is gone, under another name unless one is given."""
    backend, store = ScriptedBackend(), MemoryStore()
    is_exact = how.get("exact_name", False)
    first = await submit(backend, store, exact_name=is_exact)
    this = Between(backend, store, first.ref)
    for event in between.split():
        getattr(this, event)()

    second = await submit(backend, this.store, **how)

    is_newer = second.first_started_at > first.first_started_at
    stopped = [ref.uid for ref in backend.deleted]
    assert (second.attempt, second.adopted, backend.created, stopped, is_newer) == outcome
    assert (second.ref == first.ref) is second.adopted
    assert (second.ref.name == first.ref.name) is (second.adopted or is_exact)


async def test_each_try_that_adopts_a_job_notes_itself_on_it() -> None:
    """By the note a frozen follower of an earlier try sees that the job is no longer its own."""
    backend, store = ScriptedBackend(), MemoryStore()
    tries = [await submit(backend, store) for _ in range(3)]

    [job] = backend.jobs.values()
    assert [each.is_taken_over(job) for each in tries] == [True, True, False]
    assert len(backend.patches) == 2  # none at the creation
    assert Submission.from_dict(json.loads(json.dumps(tries[2].to_dict()))) == tries[2]


async def test_a_try_that_cannot_note_itself_follows_all_the_same() -> None:
    backend, store = ScriptedBackend(), MemoryStore()
    await submit(backend, store)
    backend.patch_error = PermissionDenied("may not patch")

    second = await submit(backend, store)

    [job] = backend.jobs.values()
    assert (second.adopted, second.is_taken_over(job)) == (True, False)


async def test_pods_that_a_slow_operator_makes_after_the_deletion_are_waited_for() -> None:
    """It had not processed the deletion yet; while the object exists, an empty list of pods is not the end."""

    class SlowOperator(ScriptedBackend):
        def __init__(self) -> None:
            super().__init__()
            self.looks = [True, False, False, True]

        async def delete(self, ref: JobRef, *, version: str | None = None) -> None:
            """Delete the job after a delay."""

        async def pods_gone(self, ref: JobRef) -> bool:
            is_gone = self.looks.pop(0)
            if not self.looks:
                self.jobs.clear()
            return is_gone

    backend = SlowOperator()
    first = await submit(backend, MemoryStore())

    await stop_and_wait(backend, first.ref)

    assert backend.looks == []


async def test_pods_of_a_jobset_that_is_made_once_more_are_waited_for() -> None:
    """Trainer may do so at the moment in which its TrainJob is deleted; the garbage collector then deletes it, too."""
    clock = asyncio.get_running_loop().time

    class Remade(ScriptedBackend):
        deleted_at = 0.0

        async def delete(self, ref: JobRef, *, version: str | None = None) -> None:
            self.deleted_at = clock()
            await super().delete(ref, version=version)

        async def pods_gone(self, _: JobRef) -> bool:
            return not 1.0 < clock() - self.deleted_at < 5.0

    backend = Remade()
    first = await submit(backend, MemoryStore(), job=replace(JOB, kind="TrainJob"))

    await stop_and_wait(backend, first.ref)

    assert clock() - backend.deleted_at >= 5.0 + 3.0


async def test_a_job_that_a_finalizer_keeps_is_stopped_when_its_pods_stay_away() -> None:
    """Another party's finalizer may keep the object forever."""

    class Kept(ScriptedBackend):
        async def delete(self, ref: JobRef, *, version: str | None = None) -> None:
            self.deleted.append(ref)

    backend = Kept()
    first = await submit(backend, MemoryStore())

    await stop_and_wait(backend, first.ref)

    assert backend.deleted == [first.ref]
    assert backend.jobs


async def test_our_dying_job_is_waited_for_before_the_next_attempt() -> None:
    """Two live jobs for one task never exist."""
    backend = ScriptedBackend()
    first = await submit(backend, MemoryStore())
    backend.jobs["team", first.ref.name]["metadata"]["deletionTimestamp"] = "2026-11-20T10:00:00Z"
    backend.pods_stay = 3

    second = await submit(backend, MemoryStore())

    assert (second.attempt, backend.pods_stay) == (2, -1)


@pytest.mark.parametrize("is_exact", [False, True])
async def test_somebody_elses_job_of_the_name_is_left_alone(*, is_exact: bool) -> None:
    """The error names its owner and the remedy."""
    backend = BackendWithTakenNames(STRANGER, 1)

    message = r"team/digits.*did not create: .* of 'staging'; choose another name, or"
    with pytest.raises(JobAlreadyExists, match=message):
        await submit(backend, MemoryStore(), exact_name=is_exact)

    assert (backend.created, backend.deleted) == (1, [])


async def test_a_job_that_does_not_say_whose_it_is_is_left_alone() -> None:
    """Somebody created it by hand, under the literal name of a task."""
    backend = ScriptedBackend()
    await submit(backend, MemoryStore(), exact_name=True)
    del backend.jobs["team", "digits"]["metadata"]["annotations"]

    with pytest.raises(JobAlreadyExists, match="did not create: it does not say who did"):
        await submit(backend, MemoryStore(), exact_name=True)


async def test_a_try_that_died_at_a_taken_name_goes_on_with_the_next_attempt() -> None:
    """The record holds the intent to create a job under a name that a stranger has taken."""
    backend, store = BackendWithTakenNames(STRANGER, 1), MemoryStore()
    with pytest.raises(JobAlreadyExists):
        await submit(backend, store)

    again = await submit(backend, store)

    assert (again.attempt, again.adopted, backend.created) == (2, False, 2)
    assert backend.deleted == []


async def test_an_intent_whose_create_never_arrived_is_repeated() -> None:
    backend, store = ScriptedBackend(), MemoryStore()
    backend.submits = ["refused"]
    with pytest.raises(ClusterUnavailable):
        await submit(backend, store)

    submission = await submit(backend, store)

    assert (submission.attempt, backend.created) == (1, 1)


class Late(ScriptedBackend):
    """The server finishes the create request of a worker that has given up when another one creates a job."""

    late: Manifest | None = None
    finishes = "never"

    async def submit(self, manifest: Manifest) -> JobRef:
        if self.late is None:
            self.late = manifest
            raise ClusterUnavailable("no answer")
        when = self.finishes
        if when.startswith("before"):
            await self.finish()
        if when == "before one without an answer":
            raise ClusterUnavailable("no answer")
        ref = await super().submit(manifest)
        if when == "after it":
            await self.finish()
        return ref

    async def finish(self) -> None:
        assert self.late is not None
        self.finishes = "never"
        with suppress(JobAlreadyExists):
            await super().submit(self.late)


@pytest.mark.parametrize("is_exact", [False, True])
@pytest.mark.parametrize(
    ("finishes", "attempt", "stopped"),
    [
        ("before the next create", 2, ["uid-1"]),
        ("before one without an answer", 2, ["uid-1"]),
        ("after it", 1, []),
    ],
)
async def test_a_create_that_ends_after_its_task_was_cleared_makes_no_second_job(
    finishes: str, attempt: int, stopped: list[str], *, is_exact: bool
) -> None:
    """A slow webhook; the worker was stopped meanwhile. Two jobs would write into one folder of checkpoints."""
    backend, store = Late(), MemoryStore()
    with pytest.raises(ClusterUnavailable):
        await submit(backend, store, exact_name=is_exact, clear_number=1)
    backend.finishes = finishes

    second = await submit(backend, store, exact_name=is_exact, clear_number=2)

    assert [JobRef.of(job) for job in backend.jobs.values()] == [second.ref]
    assert (second.attempt, second.adopted) == (attempt, False)
    assert [ref.uid for ref in backend.deleted] == stopped
    assert store.record is not None
    assert (store.record.uid, store.record.clear_number) == (second.ref.uid, 2)


async def test_a_frozen_try_leaves_the_job_that_a_later_try_has_created_since_the_clear() -> None:
    """It wakes at its create request, and the name is taken by a training of the same task."""

    class Frozen(Late):
        async def submit(self, manifest: Manifest) -> JobRef:
            if self.late is not None and self.finishes == "frozen":
                self.finishes = "never"
                await submit(self, store, clear_number=2)
            return await super().submit(manifest)

    backend, store = Frozen(), MemoryStore()
    with pytest.raises(ClusterUnavailable):
        await submit(backend, store, clear_number=1)
    backend.finishes = "frozen"

    woken = await submit(backend, store, clear_number=2)

    assert (woken.ref.uid, woken.adopted, backend.deleted) == ("uid-1", True, [])


async def test_a_create_whose_answer_was_lost_is_adopted_at_once() -> None:
    backend, store = ScriptedBackend(), MemoryStore()
    backend.submits = ["lost"]

    submission = await submit(backend, store)

    assert (submission.ref.uid, backend.created) == ("uid-1", 1)


@pytest.mark.parametrize("answer", ["lost", "taken"])
async def test_a_job_that_ended_before_the_answer_to_its_create_is_not_trained_again(answer: str) -> None:
    """A short job, a slow network: no response at all, or a repeated create that finds the name taken."""

    class Quick(ScriptedBackend):
        async def submit(self, manifest: Manifest) -> JobRef:
            ref = await super().submit(manifest)
            self.jobs["team", ref.name] = finished(self.jobs["team", ref.name])
            raise ClusterUnavailable("no answer") if answer == "lost" else JobAlreadyExists("taken", code=409)

    backend = Quick()

    submission = await submit(backend, MemoryStore())

    assert (submission.attempt, submission.adopted, backend.created) == (1, True, 1)


async def test_pods_that_never_go_are_an_error_that_a_retry_may_mend() -> None:
    backend, store = ScriptedBackend(), MemoryStore()
    submission = await submit(backend, store)
    backend.pods_stay = 10_000

    with pytest.raises(ClusterUnavailable, match="still run 1 s after it was deleted") as caught:
        await stop_and_wait(backend, submission.ref, timeout=1.0)

    assert caught.value.retryable


async def test_a_wrong_specification_stops_nothing() -> None:
    backend, store = ScriptedBackend(), MemoryStore()
    await submit(backend, store)
    conclude_attempt(store)

    with pytest.raises(InvalidSpec):
        await submit(backend, store, job=TrainingJob.parse(name="digits", image="d", model="/nowhere/model.pt"))

    assert backend.deleted == []


async def test_a_name_that_became_free_again_is_an_error_that_a_retry_mends() -> None:
    """Between the 409 and the GET somebody deleted it."""
    backend = ScriptedBackend()
    backend.submits = [JobAlreadyExists("taken", code=409)]

    with pytest.raises(ClusterUnavailable, match="free again"):
        await submit(backend, MemoryStore())


async def test_a_lost_answer_with_a_strangers_job_under_the_name_stays_an_error() -> None:
    backend = ScriptedBackend()
    await submit(backend, MemoryStore(), owner=STRANGER, exact_name=True)
    backend.submits = ["refused"]

    with pytest.raises(ClusterUnavailable):
        await submit(backend, MemoryStore(), exact_name=True)


def test_concluding_or_delivering_without_a_record_is_nothing() -> None:
    store = MemoryStore()

    conclude_attempt(store)
    deliver_attempt(store, by_try=1)

    assert store.record is None


PRIVATE = {"GIT_SYNC_USERNAME": "ann", "GIT_SYNC_PASSWORD": "tops3cret"}


async def test_a_secret_that_is_refused_once_does_not_fail_the_try_that_adopts_its_job() -> None:
    job = TrainingJob.parse(name="digits", namespace="team", image="digits:1", code="https://g/x.git", env=PRIVATE)
    backend, store = ScriptedBackend(), MemoryStore()
    await submit(backend, store, job=job)
    backend.secrets.clear()
    backend.refusals["give_secret"] = [PermissionDenied("may not create secrets", code=403)]

    second = await submit(backend, store, job=job)

    assert (second.adopted, list(backend.secrets)) == (True, [second.ref.name])


async def test_the_name_of_a_jobs_secret_cannot_be_guessed() -> None:
    """Otherwise somebody could create one of that name before; an adopting try uses the name that the job refers to."""
    job = TrainingJob.parse(name="digits", namespace="team", image="digits:1", code="https://g/x.git", env=PRIVATE)
    one, other = ScriptedBackend(), ScriptedBackend()
    other.submits = ["lost"]

    names = []
    for server in (one, other):
        submission = await submit(server, MemoryStore(), job=job)
        again = await submit(server, MemoryStore(), job=job)
        (made,) = server.jobs.values()
        (secret,) = kinds.secrets_in_env(made)
        assert (submission.ref, submission.adopted, again.adopted) == (again.ref, server is other, True)
        assert server.secrets[submission.ref.name]["metadata"]["name"] == secret
        names.append(secret.removeprefix(submission.ref.name))

    assert names[0] != names[1]
    assert [len(each) for each in names] == [len("-code-") + 32] * 2


async def test_a_job_is_rendered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation's own code may take part: an error after the create would leave a job behind."""
    calls: list[int] = []

    def counted(*args: Any, **how: Any) -> Any:
        calls.append(how["attempt"])
        return rendered(*args, **how)

    rendered = kinds.DEFAULT.render
    monkeypatch.setattr(kinds.DEFAULT, "render", counted)

    await submit(ScriptedBackend(), MemoryStore())

    assert calls == [1]


async def test_a_job_that_names_no_kind_is_made_as_one_that_is_served() -> None:
    """The next try finds it under the kind that was created."""
    backend, store = ScriptedBackend(), MemoryStore()
    backend.served = {"TrainJob"}

    first = await submit(backend, store)
    second = await submit(backend, store)

    assert (first.ref.kind, first.rank0) == ("TrainJob", f"{first.ref.name}-node-0-0")
    assert [record.kind for record in store.history[:3]] == ["PyTorchJob", "TrainJob", "TrainJob"]
    assert (second.ref, second.adopted, second.spec_changed) == (first.ref, True, False)


@each_row(
    ("served", "fields", "made"),
    [
        ({"PyTorchJob", "TrainJob"}, {}, "TrainJob"),
        ({"PyTorchJob", "TrainJob"}, {"kind": "PyTorchJob"}, "PyTorchJob"),
        ({"PyTorchJob"}, {}, "PyTorchJob"),
        ({"PyTorchTrainingJob"}, {}, "PyTorchTrainingJob"),
    ],
)
async def test_an_installation_prefers_a_kind(served: set[str], fields: dict[str, Any], made: str) -> None:
    """For jobs without a kind; another kind is used if the cluster does not serve it."""
    backend = ScriptedBackend()
    backend.served = served
    job = TrainingJob.parse(name="digits", image="digits:1", **fields)

    submission = await submit(backend, MemoryStore(), job=job, installation=Installation(kind="TrainJob"))

    assert submission.ref.kind == made


async def test_a_job_that_names_another_kind_than_the_adopted_one_is_not_trained_twice() -> None:
    """The record keeps the kind of the running job, so that later tries find it."""
    backend, store = ScriptedBackend(), MemoryStore()
    first = await submit(backend, store)

    tries = [await submit(backend, store, job=replace(JOB, kind="TrainJob")) for _ in range(2)]

    assert [(each.ref, each.adopted, each.spec_changed) for each in tries] == [(first.ref, True, True)] * 2
    assert backend.created == 1


async def test_the_next_attempt_is_of_another_kind_where_the_first_ones_operator_is_gone() -> None:
    backend, store = ScriptedBackend(), MemoryStore()
    await submit(backend, store)
    conclude_attempt(store)
    backend.served = {"TrainJob"}

    second = await submit(backend, store, installation=Installation(kind="TrainJob"))

    assert (second.ref.kind, second.attempt) == ("TrainJob", 2)


@each_row(
    ("fields", "text"),
    [
        ({"kind": "PyTorchJob"}, "PyTorchJob is not served"),
        ({"ttl_seconds_after_finished": 1}, "not served; as a TrainJob it cannot be made: ttl_.*; as a PyTorchTr"),
    ],
)
async def test_a_job_that_no_served_kind_can_be_made_as_is_refused(fields: dict[str, Any], text: str) -> None:
    backend, job = ScriptedBackend(), TrainingJob.parse(name="digits", image="digits:1", **fields)
    backend.served = {"TrainJob"}

    with pytest.raises(KindNotServed, match=text):
        await submit(backend, MemoryStore(), job=job)

    assert backend.created == 0


async def test_a_kind_that_cannot_say_it_is_passed_over() -> None:
    """The server need not be checked for it."""
    backend = ScriptedBackend()
    backend.served = {"PyTorchTrainingJob"}

    submission = await submit(backend, MemoryStore(), job=TrainingJob.parse(name="d", image="i", backoff_limit=1))

    assert submission.rank0 == f"{submission.ref.name}-worker-0"


async def test_a_strangers_job_under_the_recorded_name_is_not_stopped() -> None:
    """The recorded job is gone, and somebody else has taken its name since."""
    backend, store = ScriptedBackend(), MemoryStore()
    first = await submit(backend, store, exact_name=True)
    conclude_attempt(store)
    del backend.jobs["team", "digits"]
    await submit(backend, MemoryStore(), owner=STRANGER, exact_name=True)

    with pytest.raises(JobAlreadyExists):
        await submit(backend, store, exact_name=True)

    assert set(backend.deleted) <= {first.ref}


@pytest.mark.parametrize("size", [1, None], ids=["as before", "scaled to zero: its log is that of its first pod"])
def test_a_job_of_the_same_or_an_unknown_size_keeps_its_submission(size: int | None) -> None:
    """The same object: ten thousand jobs wait, and each would have a second copy of its replicas."""
    submission = Submission.of(elastic(followed_job(), 1, generation=1))

    assert submission.resized(elastic(followed_job(), size, generation=1) if size else followed_job()) is submission


def test_a_job_that_is_scaled_has_other_replicas() -> None:
    """With their ranks and GPUs; the rest stays as submitted."""
    submission = Submission.of(elastic(followed_job(), 1, generation=1))

    found = submission.resized(elastic(followed_job(), 2, generation=2))

    assert found.ranks == {"digits-worker-0": 0, "digits-worker-1": 1}
    assert found.gpus_of == {"digits-worker-0": 1, "digits-worker-1": 1}
    assert (found.ref, found.rank0) == (submission.ref, submission.rank0)


EARLIER = {"attempt": 1, "job": "team/digits", "cause": "node_lost"}


@each_row("is_deleted", [False, True])
async def test_a_later_attempt_knows_how_the_earlier_ones_ended(*, is_deleted: bool) -> None:
    """Its job and its record have their summaries, so that they outlive the earlier jobs."""
    backend, store = ScriptedBackend(), MemoryStore()
    first = await submit(backend, store)
    conclude_attempt(store, EARLIER)
    if is_deleted:
        backend.jobs.clear()

    second = await submit(backend, store)
    conclude_attempt(store, {"attempt": 2, "cause": "oom_killed"})
    adopted = Submission.of(await backend.get("", second.ref.namespace, second.ref.name))

    assert (first.earlier, second.earlier, adopted.earlier) == ([], [EARLIER], [EARLIER])
    assert store.record is not None
    assert store.record.earlier == [EARLIER, {"attempt": 2, "cause": "oom_killed"}]
    assert AttemptRecord.from_dict(json.loads(json.dumps(store.record.to_dict()))) == store.record
    assert "earlier" not in second.to_dict()


@each_row("is_lost", [False, True])
async def test_an_attempt_that_no_try_has_concluded_is_summarized_from_its_job(*, is_lost: bool) -> None:
    """Its follower died, or Airflow has no store: the job itself has the diagnosis and the steps."""
    backend, store = ScriptedBackend(), MemoryStore()
    first = await submit(backend, store)
    job = backend.jobs["team", first.ref.name] = finished(backend.jobs["team", first.ref.name], "Failed")
    job["metadata"]["annotations"] |= {
        DIAGNOSIS_ANNOTATION: Diagnosis.of(Cause.NODE_LOST, f"{first.ref.name}-master-0 (rank 0) was lost").to_text(),
        REPORTED_ANNOTATION: json.dumps({"first_step": 3, "last_step": 40}),
    }

    second = await submit(backend, MemoryStore() if is_lost else store, clear_number=1)

    [summary] = second.earlier
    expected = {"attempt": 1, "job": str(first.ref), "uid": "uid-1", "outcome": "Failed", "cause": "node_lost"}
    assert summary.items() >= {**expected, "first_step": 3, "last_step": 40}.items()
    assert summary["message"] == "master-0 (rank 0) was lost"
    assert summary["advice"]


async def test_the_newest_of_many_attempts_are_kept() -> None:
    backend, store = ScriptedBackend(), MemoryStore()
    for attempt in range(1, 30):
        await submit(backend, store)
        conclude_attempt(store, {"attempt": attempt, "message": "long " * 60})

    last = await submit(backend, store)

    attempts = [each["attempt"] for each in last.earlier]
    assert attempts == [*range(30 - len(attempts), 30)]
    assert 10 <= len(attempts) <= MAX_EARLIER
    assert len(json.dumps(last.earlier)) <= EARLIER_SIZE


@each_row(
    "text",
    [
        *("", "no list", "{}", "[1]", '[{"attempt": "x"}]', '[{"attempt": Infinity}]', '[{"job": "a"}]', "null"),
        '[{"attempt": 99999999999999999999}]',
    ],
)
def test_summaries_that_somebody_has_edited_are_none(text: str) -> None:
    meta = {"annotations": {EARLIER_ANNOTATION: text}}

    assert earlier_in({"metadata": meta}) == []


@each_row("value", ["[" * 900 + "]" * 900, "NaN", '"\\ud800"', "9" * 30])
@each_row(
    ("annotation", "text"),
    [
        (EARLIER_ANNOTATION, '[{"attempt": 1, "rate": VALUE}]'),
        (PREEMPTIONS_ANNOTATION, '{"ended": [{"node": VALUE}]}'),
        (CODE_ANNOTATION, '{"digest": VALUE}'),
        (REPORTED_ANNOTATION, '{"first_step": VALUE}'),
    ],
)
async def test_edited_annotations_of_a_job_are_made_safe_to_send(annotation: str, text: str, value: str) -> None:
    """It is part of events, XComs and stored records; a triggerer has those of all jobs."""
    backend, store = ScriptedBackend(), MemoryStore()
    await submit(backend, store)
    (job,) = backend.jobs.values()
    job["metadata"]["annotations"][annotation] = text.replace("VALUE", value)

    submission = Submission.of(job)

    assert submission.to_dict()
    for part in (submission.code_revision, submission.preemptions, with_own(job)):
        assert json.dumps(outgoing(part)) == json.dumps(part)
