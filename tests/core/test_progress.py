"""Tests of the progress of a followed job, with recorded observations."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pods
from ptjob_provider.core.backend import Observation, View
from ptjob_provider.core.history import from_text, to_text
from ptjob_provider.core.run.progress import JobProgress, ProgressUpdate
from ptjob_provider.core.run.submit import Submission
from ptjob_provider.core.status import JobPhase
from recorded import recorded
from rows import each_row
from story import STORIES, read, worlds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NOW = datetime(2026, 11, 20, 10, 5, tzinfo=UTC)
AT = "2026-11-20T10:03:00Z"


def looks(name: str) -> Iterator[tuple[Observation, datetime]]:
    """Yield the observations of a recorded job, with their times."""
    for look in worlds(recorded(name)):
        yield Observation(job=None if look.is_deleted else look.job, pods=look.pods, events=look.events), look.at


def known(name: str, *, mask: Callable[[str], str] = str) -> JobProgress:
    return JobProgress(submission=Submission.of(recorded(name)["job"]), mask=mask)


def running(seen: Observation) -> list[Any]:
    statuses = [status for pod in seen.pods for status in pod.get("status", {}).get("containerStatuses", ())]
    return [status for status in statuses if "running" in status["state"]]


@each_row("name", STORIES)
def test_a_repeated_observation_reports_nothing(name: str) -> None:
    """A repeated observation reports nothing again, and stores no end of a container twice."""
    this = known(name)

    for seen, at in looks(name):
        this.take(seen, now=at)

        assert this.take(seen, now=at) == ProgressUpdate()


@each_row("name", [name for name in STORIES if not read(name).is_deleted])
def test_a_job_that_is_followed_look_by_look_has_the_recorded_ends_and_status(name: str) -> None:
    this, ends, removed = known(name), 0, False
    for seen, at in looks(name):
        ends += this.take(seen, now=at).has_ends
        removed = removed or bool(this.pods.removals and not this.status.phase.is_terminal)

    story = read(name)
    assert this.pods.terminations == story.record.terminations
    assert bool(ends) is bool(story.record.terminations or removed)
    assert (this.status, this.deleted) == (story.status, False)


def test_an_unobserved_job_is_pending_and_has_no_log() -> None:
    this = known("pod-deleted-gloo")

    assert (this.record, this.status.phase, this.has_begun, this.has_log) == (None, JobPhase.PENDING, False, False)


def test_each_news_names_the_job_and_masks_what_programs_said() -> None:
    """Masking comes before anything is logged or stored."""
    this = known("pod-abort-after-exception", mask=lambda text: text.replace("Error", "***"))
    told = [text for seen, at in looks("pod-abort-after-exception") for text in this.take(seen, now=at).sentences]

    assert told
    assert all(text.startswith("team/digits-1a2b3c4d") for text in told)
    ends = "\n".join(end.message for end in this.pods.terminations)
    assert "***" in ends
    assert "Error" not in ends


def without_messages(seen: Observation) -> Observation:
    """Return the observation without termination messages, as for the pods of a TrainJob."""
    pods = copy.deepcopy(seen.pods)
    for status in (status for pod in pods for status in pod.get("status", {}).get("containerStatuses", ())):
        for state in (status.get("state", {}), status.get("lastState", {})):
            state.get("terminated", {}).pop("message", None)
    return replace(seen, pods=pods)


def until_silent(this: JobProgress, name: str) -> list[str]:
    """Apply observations up to the first end without a message, and return the reported lines."""
    told: list[str] = []
    for seen, at in looks(name):
        told += this.take(without_messages(seen), now=at).sentences
        if this.silent():
            return told
    raise AssertionError(f"{name}: all ends have messages")


def test_a_replica_that_left_no_message_is_reported_with_the_last_lines_of_its_log() -> None:
    """It is reported once, when it ends; the lines are kept in the pod history."""
    this = known("pod-abort-after-exception")
    before = until_silent(this, "pod-abort-after-exception")
    [end] = this.silent()

    told = this.add_messages([end], ["step 7\nValueError: bad batch"])

    died = "died of SIGSEGV (exit code 139); its last lines:\n    step 7\n    ValueError: bad batch"
    assert told == (f"{this.submission.ref}: {end.replica} {died}",)
    assert not any(end.replica in said for said in before)
    assert [one.message for one in this.pods.terminations if one.key == end.key] == ["step 7\nValueError: bad batch"]
    assert (this.silent(), this.add_messages([], [])) == ((), ())


def of_one(replica: str, status: dict[str, Any], *, uid: str = "a") -> Observation:
    """Return the recorded job with one pod."""
    job = recorded("pod-deleted-gloo")["job"]
    meta = {"name": f"{job['metadata']['name']}-{replica}", "uid": uid}
    seen = next(seen for seen, _ in looks("pod-deleted-gloo") if seen.pods)
    return Observation(
        job=job, pods=({**seen.pods[0], "metadata": {**seen.pods[0]["metadata"], **meta}, "status": status},)
    )


def test_the_reason_of_rank_0s_restart_is_reported_once() -> None:
    """Its own log does not say that its pod was evicted; an end that is the job's own is told by the diagnosis."""
    run = {"containerStatuses": [pods.container(pods.RUNNING)]}
    killed = {"containerStatuses": [pods.container(pods.ended(137, reason="Error"))]}
    evicted = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory.", **killed}
    this = known("pod-deleted-gloo")

    told = [
        [text for text in this.take(of_one("master-0", status, uid=uid), now=NOW).sentences if "master-0" in text]
        for uid, status in (("a", run), ("a", evicted), ("b", run), ("b", run))
    ]

    assert [len(texts) for texts in told] == [0, 0, 1, 0]
    assert "evicted: The node was low on memory; " in told[2][0]


def test_a_log_that_says_nothing_is_asked_for_twice() -> None:
    """The log may be unavailable while its container restarts, and a program may print nothing."""
    this = known("pod-abort-after-exception")
    until_silent(this, "pod-abort-after-exception")

    told = [this.add_messages(this.silent(), [""]) for _ in range(2)]

    assert [len(texts) for texts in told] == [1, 0]
    assert this.silent() == ()


def test_the_logs_of_a_job_that_is_gone_are_not_asked_for_and_its_history_is_kept() -> None:
    """Its pods are deleted with it; the diagnosis needs the history."""
    this = known("pod-abort-after-exception")
    until_silent(this, "pod-abort-after-exception")
    story = this.pods

    assert this.take(Observation(job=None), now=NOW) == ProgressUpdate()
    assert (this.deleted, this.pods, this.silent()) == (True, story, ())


def test_a_job_that_runs_according_to_its_pods_is_reported_without_the_older_message() -> None:
    """The message belongs to the condition before: "is Running: PyTorchJob digits is created."."""
    name = "pod-deleted-gloo"
    this, job = known(name), recorded(name)["job"]
    created = {"type": "Created", "status": "True", "reason": "PyTorchJobCreated", "message": "it is created."}
    all_run, at = next((seen, at) for seen, at in looks(name) if len(running(seen)) == len(this.submission.ranks))

    news = this.take(replace(all_run, job={**job, "status": {"conditions": [created]}}), now=at)

    assert news.sentences == (f"{this.submission.ref} is Running",)


def test_a_failed_job_is_reported_without_its_message_and_later_ends_count_as_stopped() -> None:
    """The diagnosis follows; a killed replica would look like a second cause."""
    this = known("pod-deleted-gloo")
    failed = {"type": "Failed", "status": "True", "lastTransitionTime": AT, "message": "1 Master replica(s) failed."}
    over = {"status": {"conditions": [failed], "completionTime": AT}}
    state = pods.ended(137, start=180, end=182, reason="Error")
    seen = of_one("worker-0", {"phase": "Failed", "containerStatuses": [pods.container(state)]})
    assert seen.job is not None
    seen = replace(seen, job={**seen.job, **over})

    is_failed = this.take(replace(seen, pods=()), now=NOW).sentences
    this.take(seen, now=NOW)
    said = this.add_messages(this.silent(), [""])

    assert is_failed == (f"{this.submission.ref} is Failed",)
    assert [text.partition("-worker-0 ")[2] for text in said] == ["was stopped after the job's end"]


def test_a_job_that_is_seen_to_have_ended_keeps_what_ran_until_then() -> None:
    """The operator stops the replicas at the same moment, so a later observation has none running."""
    this = known("pod-deleted-gloo")
    for seen, at in looks("pod-deleted-gloo"):
        before, phase = this.pods.running, this.status.phase
        this.take(seen, now=at)
        if this.status.phase.is_terminal and not phase.is_terminal:
            break

    assert before
    assert this.pods.running == before


def test_an_older_observation_does_not_undo_the_end_of_a_job() -> None:
    """A watch may lag behind what was read from the server."""
    this, seen = known("pod-oomkilled"), [*looks("pod-oomkilled")]
    for observation, at in seen:
        this.take(observation, now=at)
    record, status = this.record, this.status
    assert status.phase.is_terminal

    assert this.take(seen[0][0], now=NOW) == ProgressUpdate()

    assert (this.record, this.status) == (record, status)


def test_a_new_follower_counts_no_wait_beside_an_elastic_training() -> None:
    """The waits of replicas that the job does without begin when too few run, also if that is between two followers."""
    job = recorded("pytorchjob-running")
    job["spec"]["elasticPolicy"] = {"minReplicas": 1}
    this = JobProgress(submission=Submission.of(job), mask=str)
    image = {"waiting": {"reason": "ImagePullBackOff"}}
    runs = pods.pod(pods.container(pods.RUNNING), name="w0", uid="u0")
    stuck = pods.pod(pods.container(image), name="w1", uid="u1")

    this.take(Observation(job=job, pods=[runs, stuck]), now=NOW)

    later = NOW + timedelta(hours=1)
    stored = from_text(to_text(this.counted(later, View(age=0, live=0))))
    assert {wait.since for wait in stored.resumed(later).waiting} == {later}
