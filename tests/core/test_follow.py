"""Tests of following a job: messages, stops and outcome. A scripted back-end replaces the cluster."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any

import pytest

from fakes import ListSink, ScriptedBackend
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.diagnosis import Cause, Diagnosis, Limits
from ptjob_provider.core.errors import (
    ClusterError,
    ClusterUnavailable,
    JobFailed,
    JobNotFound,
    JobTakenOver,
    JobTimedOut,
    OutputsNotVerified,
)
from ptjob_provider.core.history import from_text
from ptjob_provider.core.history.peak_usage import PeakUsage
from ptjob_provider.core.identity import (
    ADOPTED_ANNOTATION,
    OVERDUE_ANNOTATION,
    RECORD_ANNOTATION,
    REPORT_ANNOTATION,
    USAGE_ANNOTATION,
    JobRef,
    Manifest,
)
from ptjob_provider.core.logs import LogCursor, LogLine
from ptjob_provider.core.outputs.contract import OutputFacts, OutputReport, ResolvedOutput, ResolvedOutputs, read_report
from ptjob_provider.core.run import cleanup
from ptjob_provider.core.run.follow import FollowOptions, follow
from ptjob_provider.core.run.outcome import JobOutcome, Outcome, deadline_after, raise_for
from ptjob_provider.core.run.rank0_log import catch_up
from ptjob_provider.core.run.submit import Submission
from ptjob_provider.core.status import JobPhase, JobStatus
from rows import each_row

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytestmark = pytest.mark.skips_waits

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
REF = JobRef(kind="PyTorchJob", namespace="team", name="digits", uid="u-1")
MODEL = ResolvedOutput(uri="pvc://c/m.pt", claim="c", path="m.pt", container_path="/data/m.pt")
MASTER, WORKER = "digits-master-0", "digits-worker-0"


def submission(*, model: bool = False) -> Submission:
    return Submission(
        ref=REF,
        attempt=1,
        adopted=False,
        spec_changed=False,
        ranks={MASTER: 0, WORKER: 1},
        gpus_of={MASTER: 1, WORKER: 1},
        outputs=ResolvedOutputs(model=MODEL if model else None),
        first_started_at="2026-11-20T12:00:00Z",
    )


def job(*conditions: str, annotations: dict[str, str] | None = None) -> Manifest:
    """Return the job as the API server stores it; its conditions are all true, one minute apart."""
    texts = {"status": "True", "reason": "R", "message": "m"}
    listed = [
        {"type": kind, "lastTransitionTime": f"2026-11-20T12:0{minute}:00Z", **texts}
        for minute, kind in enumerate(conditions)
    ]
    meta = {"namespace": "team", "name": "digits", "uid": "u-1", "creationTimestamp": "2026-11-20T12:00:00Z"}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": meta | {"annotations": annotations or {}},
        "spec": {},
        "status": {
            "conditions": listed,
            "startTime": "2026-11-20T12:00:00Z",
            "completionTime": "2026-11-20T12:09:00Z",
        },
    }


def elastic(found: Manifest, workers: int, generation: int) -> Manifest:
    """Return the job with this number of workers, set by its generation-th revision."""
    gpu = {"name": "pytorch", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    role = {"replicas": workers, "template": {"spec": {"containers": [gpu]}}}
    meta = found["metadata"] | {"generation": generation}
    return found | {"metadata": meta, "spec": {"pytorchReplicaSpecs": {"Worker": role}}}


def pod(name: str, state: dict[str, Any], *, phase: str = "Running") -> Manifest:
    """Return a replica whose training container is in this state."""
    container = {"name": "pytorch", "restartCount": 0, "state": state}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-11-20T12:00:00Z"},
        "spec": {"nodeName": "n", "containers": [{"name": "pytorch"}], "restartPolicy": "Never"},
        "status": {"phase": phase, "containerStatuses": [container]},
    }


RUNS = {"running": {"startedAt": "2026-11-20T12:00:10Z"}}
STUCK = pod(MASTER, {"waiting": {"reason": "InvalidImageName", "message": "must be lowercase"}}, phase="Pending")


def exited(code: int, message: str = "") -> dict[str, Any]:
    ended = {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}
    return {"terminated": ended | {"startedAt": "2026-11-20T12:00:10Z", "finishedAt": "2026-11-20T12:05:00Z"}}


def started_again(found: Manifest, ended: dict[str, Any], *, count: int = 1) -> Manifest:
    """Return a restarted replica whose previous run ended like this."""
    [status] = found["status"]["containerStatuses"]
    found["status"]["containerStatuses"] = [status | {"restartCount": count, "lastState": ended}]
    found["spec"]["restartPolicy"] = "OnFailure"
    return found


def written(*texts: str, pod_uid: str = "p") -> list[LogLine]:
    stamp = "2026-11-20T12:00:11.5Z"
    return [
        LogLine(
            text=text,
            timestamp=stamp,
            cursor=LogCursor(pod_uid=pod_uid, container="pytorch", restart_count=0, timestamp=stamp, ordinal=n),
        )
        for n, text in enumerate(texts)
    ]


def found(**facts: Any) -> OutputReport:
    written_at = NOON.timestamp() + 60
    base: dict[str, Any] = {"exists": True, "bytes": 9, "sha256": "ab", "modified_at": written_at, "files": 1}
    return OutputReport(model=OutputFacts(**(base | facts)), tfevents=None)


def showing(*worlds: Observation) -> ScriptedBackend:
    """Return a back-end that shows these snapshots, one after the other."""
    backend = ScriptedBackend()
    backend.worlds = [*worlds]
    return backend


def ticking(*, after: int = 0) -> Callable[[], datetime]:
    """Return a clock that advances by two seconds per call."""
    seconds = count(after, 2)
    return lambda: NOON + timedelta(seconds=next(seconds))


def diagnosis_of(conclusion: JobOutcome) -> Diagnosis:
    assert conclusion.diagnosis is not None
    return conclusion.diagnosis


def result_of(conclusion: JobOutcome) -> dict[str, Any]:
    assert conclusion.result is not None
    return conclusion.result


async def test_a_job_that_succeeds_is_followed_with_its_log() -> None:
    """Each line and each phase is reported once, and the result at the end."""
    running = Observation(job=job("Created", "Running"), pods=[pod(MASTER, RUNS), pod(WORKER, RUNS)])
    done = [pod(MASTER, exited(0), phase="Succeeded"), pod(WORKER, exited(0), phase="Succeeded")]
    succeeded = Observation(job=job("Created", "Succeeded"), pods=done)
    backend, sink = showing(Observation(job=job("Created")), running, running, succeeded), ListSink()
    backend.lines = written("epoch 1", "epoch 2")

    conclusion = await follow(backend, submission(), sink=sink)

    assert conclusion.outcome is Outcome.SUCCEEDED
    assert sink.lines == ["epoch 1", "epoch 2"]
    assert sum("is Running" in text for text in sink.notices) == 1
    assert result_of(conclusion)["gpu_seconds"] == pytest.approx(2 * (9 * 60 - 10))
    assert conclusion.cursor == backend.lines[-1].cursor


USED = {MASTER: PeakUsage(peak_cpu=1.5, peak_memory=10, samples=2)}


@pytest.mark.parametrize("condition", ["Succeeded", "Failed"])
async def test_the_usage_of_replicas_is_in_the_result_and_on_the_job(condition: str) -> None:
    """At most one request at the end stores it, so that later readers of the job see it too."""
    backend = showing(Observation(job=job(condition)))
    backend.uses = USED

    result = result_of(await follow(backend, submission(), sink=ListSink()))
    (noted,) = [change["metadata"]["annotations"] for change in backend.patches]
    later = showing(Observation(job=job(condition, annotations=noted)))
    again = result_of(await follow(later, submission(), sink=ListSink()))

    assert again["usage"] == result["usage"] == {"replicas": {MASTER: USED[MASTER].to_dict()}, "left_out": 0}


async def test_usage_so_far_is_stored_when_a_container_ends() -> None:
    """It is part of the record's own request; the next follower adds to it."""
    ended = Observation(job=job("Running"), pods=[pod(WORKER, exited(3, "boom"), phase="Failed")])
    backend = showing(ended, Observation(job=job("Failed")))
    backend.uses = USED

    await follow(backend, submission(), sink=ListSink())
    first = backend.patches[0]["metadata"]["annotations"]
    later = showing(Observation(job=job("Succeeded", annotations=first)))
    later.uses = {MASTER: PeakUsage(peak_cpu=0.5, peak_memory=99, samples=1)}
    again = await follow(later, submission(), sink=ListSink())

    assert set(first) == {RECORD_ANNOTATION, USAGE_ANNOTATION}
    assert len(backend.patches) == 2
    both = PeakUsage(peak_cpu=1.5, peak_memory=99, samples=2)
    assert result_of(again)["usage"]["replicas"][MASTER] == both.to_dict()


async def test_init_containers_that_succeed_are_not_stored() -> None:
    """The operator gives each worker one, so that a large job would be written at the start of each of its pods."""
    workers = [pod(f"digits-worker-{number}", RUNS) for number in range(100)]
    for worker in workers:
        worker["status"]["initContainerStatuses"] = [{"name": "init-pytorch", "restartCount": 0, "state": exited(0)}]
    running = Observation(job=job("Running"), pods=workers)
    backend = showing(running, running, Observation(job=job("Succeeded")))

    await follow(backend, submission(), sink=ListSink())

    assert backend.patches == []


async def test_a_failed_replica_is_named_and_the_others_are_stopped() -> None:
    """The operator leaves the master running; the provider stops it."""
    tail = RAISED.replace("ValueError: bad batch", "NameError: name 'batch' is not defined")
    failed = pod(WORKER, exited(1, tail), phase="Failed")
    backend, sink = showing(Observation(job=job("Failed"), pods=[pod(MASTER, RUNS), failed])), ListSink()
    backend.pods_stay = 1000

    conclusion = await follow(backend, submission(), sink=sink)

    message = r"^team/digits failed: .*worker-0 \(rank 1\).*NameError: name 'batch'"
    with pytest.raises(JobFailed, match=message) as caught:
        raise_for(REF, conclusion)
    assert not caught.value.retryable
    assert {"spec": {"runPolicy": {"cleanPodPolicy": "Running"}}} in backend.patches
    assert any("are being stopped" in text for text in sink.notices)


async def test_replicas_that_end_by_themselves_after_the_job_are_not_stopped() -> None:
    """The operator would delete their pods, and rank 0's log with them."""
    failed = pod(WORKER, exited(1), phase="Failed")
    backend, sink = showing(Observation(job=job("Failed"), pods=[pod(MASTER, RUNS), failed])), ListSink()
    backend.pods_stay = 3

    await follow(backend, submission(), sink=sink)

    assert not any("runPolicy" in change.get("spec", {}) for change in backend.patches)
    assert not any("stopped" in text for text in sink.notices)


LOST = 'Traceback (most recent call last):\n  File "t.py", line 1\nRuntimeError: Connection closed by peer [10.0.0.1]\n'
RAISED = 'Traceback (most recent call last):\n  File "t.py", line 1\nValueError: bad batch\n'


@pytest.mark.parametrize("hands_off", [False, True])
@pytest.mark.parametrize("seen", ["with the job's end", "just after it"])
async def test_a_replica_that_fails_as_rank_0_ends_is_reported_though_the_job_succeeds(
    seen: str, *, hands_off: bool
) -> None:
    """The log reports it with its last lines, the result names it, and the job keeps it for later readers."""
    sink = ListSink()
    done, failed = pod(MASTER, exited(0), phase="Succeeded"), pod(WORKER, exited(1, RAISED), phase="Failed")
    running = [Observation(job=job("Running"), pods=[pod(MASTER, RUNS), pod(WORKER, RUNS)])]
    if seen == "just after it":
        running.append(Observation(job=job("Running", "Succeeded"), pods=[done, pod(WORKER, RUNS)]))
    backend = showing(*running, Observation(job=job("Running", "Succeeded"), pods=[done, failed]))

    conclusion = await follow(backend, submission(), sink=sink, hands_off=hands_off)

    assert conclusion.outcome is Outcome.SUCCEEDED
    (named,) = result_of(conclusion)["failed_replicas"]
    assert (named["replica"], named["rank"], named["exit_code"]) == (WORKER, 1, 1)
    assert (named["cause"], named["message"]) == ("python_exception", "exited with code 1: ValueError: bad batch")
    assert sum(f"{WORKER} exited with code 1; its last lines:" in text for text in sink.notices) == 1
    assert any("bad batch" in str(change) for change in backend.patches) is not hands_off


async def test_a_success_after_an_eviction_is_doubted() -> None:
    """A program that stops when it is told to, and exits with 0, makes the operator report a success."""
    evicted = pod(MASTER, exited(0), phase="Succeeded")
    reason = {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
    evicted["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", **reason}]
    sink = ListSink()

    outcome = await follow(
        showing(Observation(job=job("Running", "Succeeded"), pods=[evicted])), submission(), sink=sink
    )

    assert outcome.outcome is Outcome.SUCCEEDED
    [said] = [text for text in sink.notices if "told to stop" in text]
    assert "(EvictionByEvictionAPI: Eviction API: evicting): see whether its training is complete" in said


@pytest.mark.parametrize("runs_at_last", [False, True])
async def test_a_success_without_a_replica_that_never_ran_says_so(*, runs_at_last: bool) -> None:
    """The operator counts rank 0 alone: a worker may still wait for its image, and rank 0 may have trained alone."""
    sink = ListSink()
    done, late = pod(MASTER, exited(0), phase="Succeeded"), pod(WORKER, {"waiting": {"reason": "ErrImagePull"}})
    backend = showing(
        Observation(job=job("Running"), pods=[pod(MASTER, RUNS), late]),
        Observation(job=job("Running", "Succeeded"), pods=[done, pod(WORKER, RUNS) if runs_at_last else late]),
    )

    conclusion = await follow(backend, submission(), sink=sink)

    assert conclusion.outcome is Outcome.SUCCEEDED
    said = [text for text in sink.notices if WORKER in text and "never ran" in text]
    assert ["ErrImagePull" in text for text in said] == ([] if runs_at_last else [True])


async def test_a_replica_that_is_started_again_is_blamed_for_what_it_wrote_before() -> None:
    """Its pod does not keep the log, so it is read while the node still has it, then reported and stored on the job."""
    backend, sink = ScriptedBackend(), ListSink()
    raised, lost = (
        written(*text.splitlines(), pod_uid=f"uid-{name}") for name, text in ((WORKER, RAISED), (MASTER, LOST))
    )
    backend.lines, backend.lines_of = lost, {WORKER: raised}
    again = [started_again(pod(name, RUNS), ended) for name, ended in ((MASTER, exited(1)), (WORKER, exited(1)))]
    stopped = [started_again(pod(name, exited(137)), exited(1)) for name in (MASTER, WORKER)]
    for each in stopped:
        each["metadata"]["deletionTimestamp"] = "2026-11-20T12:04:00Z"
    backend.worlds = [Observation(job=job("Running"), pods=again), Observation(job=job("Failed"), pods=stopped)]

    why = diagnosis_of(await follow(backend, submission(), sink=sink))

    assert why.summary.startswith(f"{WORKER} (rank 1) exited with code 1 and was restarted 1 time: ValueError")
    assert why.log_tail[-1] == "ValueError: bad batch"
    assert sum(f"{WORKER} exited with code 1; its last lines:" in text for text in sink.notices) == 1
    noted = [change.get("metadata", {}).get("annotations", {}) for change in backend.patches]
    assert "bad batch" in next(texts[RECORD_ANNOTATION] for texts in noted if RECORD_ANNOTATION in texts)


async def test_replicas_that_are_stopped_at_the_jobs_end_are_not_reported() -> None:
    """The operator stops what still runs when rank 0 has ended: no warning, and no request to store it."""
    backend, sink = ScriptedBackend(), ListSink()
    done = pod(MASTER, exited(0), phase="Succeeded")
    backend.worlds = [
        Observation(job=job("Running", "Succeeded"), pods=[done, pod(WORKER, RUNS)]),
        Observation(job=job("Running", "Succeeded"), pods=[done, pod(WORKER, RUNS)]),
        Observation(job=job("Running", "Succeeded"), pods=[done, pod(WORKER, exited(143), phase="Failed")]),
    ]

    result = result_of(await follow(backend, submission(), sink=sink))

    assert result["failed_replicas"] == []
    assert backend.shown == 3
    assert not any(WORKER in text for text in sink.notices)
    assert len(backend.patches) == 1  # of the first snapshot, which shows rank 0's end


async def test_a_job_that_is_gone_after_its_success_has_succeeded() -> None:
    """Its time to live may expire immediately."""
    backend = showing(Observation(job=job("Succeeded"), pods=[pod(WORKER, RUNS)]), Observation(job=None))

    conclusion = await follow(backend, submission(), sink=ListSink())

    assert conclusion.outcome is Outcome.SUCCEEDED


async def test_replicas_that_are_left_running_on_request_hold_no_success_up() -> None:
    """A person who debugs a hanging rank wants it to stay; one more snapshot is taken, for those that have failed."""
    left = Observation(job=job("Succeeded"), pods=[pod(WORKER, RUNS)])
    backend = showing(left, left, Observation(job=job("Succeeded"), pods=[pod(WORKER, exited(1), phase="Failed")]))
    backend.pods_stay = 1000

    result = result_of(await follow(backend, submission(), sink=ListSink(), keep_running_pods=True))

    assert backend.shown == 2
    assert result["failed_replicas"] == []
    assert not any("spec" in change for change in backend.patches)


async def test_a_replica_that_does_not_stop_holds_a_success_up_for_a_moment_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kubelet grants its grace period; following does not wait for it."""
    monkeypatch.setattr(cleanup, "SETTLE_TIMEOUT", 0.01)  # otherwise the test would take as long
    backend = showing(Observation(job=job("Succeeded"), pods=[pod(WORKER, RUNS)]))

    conclusion = await follow(backend, submission(), sink=ListSink())

    assert conclusion.outcome is Outcome.SUCCEEDED


LEAVES = {"deletionTimestamp": "2026-11-20T12:00:50Z", "deletionGracePeriodSeconds": 30}
IS_OVER = {"deletionTimestamp": "2026-11-20T12:00:21Z", "deletionGracePeriodSeconds": 0}
"""The kubelet's last update: the grace period is 0, and the time of the deletion request is gone."""


@pytest.mark.parametrize(
    "seen",
    [{MASTER: False, WORKER: False}, {MASTER: False, WORKER: True}, {MASTER: True, WORKER: True}],
    ids=["both leave", "the deleted one is over", "both are over"],
)
async def test_the_pod_that_somebody_deleted_is_named_though_the_operator_tells_later_of_those_that_it_deletes(
    seen: dict[str, bool],
) -> None:
    """The operator deletes the others in the same second, once the job has failed; the snapshot before is missed."""
    stopped = exited(143)
    stopped["terminated"]["finishedAt"] = IS_OVER["deletionTimestamp"]
    ends = [pod(name, stopped if over else RUNS, phase="Failed" if over else "Running") for name, over in seen.items()]
    for each, over in zip(ends, seen.values(), strict=True):
        each["metadata"] |= IS_OVER if over else LEAVES
    about = {"metadata": {"name": "e"}, "involvedObject": {"kind": "PyTorchJob", "name": "digits"}}
    made = [{**about, "reason": "SuccessfulCreatePod", "message": f"Created pod: {name}"} for name in seen]
    run = Observation(job=job("Running"), pods=[pod(name, RUNS) for name in seen], events=made)
    backend = showing(run, Observation(job=job("Failed"), pods=ends, events=made))
    backend.reason_events = [*made, {**about, "reason": "SuccessfulDeletePod", "message": f"Deleted pod: {MASTER}"}]

    why = diagnosis_of(await follow(backend, submission(), sink=ListSink()))

    assert (why.cause, why.replica) == (Cause.TERMINATED, WORKER)


@pytest.mark.parametrize(
    ("error", "is_said"),
    [(ClusterError("forbidden", code=403), True), (JobNotFound("gone", code=404), False)],
    ids=["a Role without patch must not hide a GPU that stays in use", "its time to live has ended at once"],
)
async def test_replicas_that_cannot_be_stopped_are_said_unless_their_job_is_gone(
    error: ClusterError, *, is_said: bool
) -> None:
    backend, sink = showing(Observation(job=job("Failed"))), ListSink()
    backend.pods_stay, backend.patch_error = 1000, error

    await follow(backend, submission(), sink=sink, api_error_timeout=0)

    assert [str(error) in text for text in sink.notices if "could not be stopped" in text] == [True] * is_said


async def test_a_server_that_is_away_at_the_jobs_end_is_asked_until_it_answers() -> None:
    """Nothing is guessed meanwhile: replicas that are gone are not stopped, and the training is not lost."""
    backend = showing(Observation(job=job("Succeeded")))
    backend.refusals["pods_gone"] = [ClusterUnavailable("no answer", retry_after=0.01)] * 2

    conclusion = await follow(backend, submission(), sink=ListSink())

    assert (conclusion.outcome, backend.refusals["pods_gone"]) == (Outcome.SUCCEEDED, [])
    assert not any("spec" in change for change in backend.patches)


async def test_an_eviction_is_kept_on_the_job_before_the_pod_is_gone() -> None:
    """Its follower may have been on the same node; another one finds a failed job, and no pod."""
    target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    leaves = pod(WORKER, RUNS)
    leaves["metadata"]["deletionTimestamp"] = "2026-11-20T10:01:00Z"
    leaves["status"]["conditions"] = [target]
    made = {"reason": "SuccessfulCreatePod", "message": f"Created pod: {WORKER}", "metadata": {"uid": "e"}}
    seen = Observation(job=job("Running"), pods=[leaves], events=[made])
    backend = showing(seen, Observation(job=job("Failed")))

    await follow(backend, submission(), sink=ListSink())
    text = backend.patches[0]["metadata"]["annotations"][RECORD_ANNOTATION]
    later = showing(Observation(job=job("Failed", annotations={RECORD_ANNOTATION: text})))
    second = diagnosis_of(await follow(later, submission(), sink=ListSink()))

    assert (second.cause, second.by_platform) == (Cause.EVICTED, True)
    assert len(backend.patches) == 2  # that, and the diagnosis


async def test_the_diagnosis_of_a_failed_job_is_made_once() -> None:
    """A later reader has neither the logs nor the pods that decided it, and reports the same."""
    backend = showing(Observation(job=job("Failed"), pods=[pod(MASTER, exited(1), phase="Failed")]))
    backend.lines = written("Traceback (most recent call last):", "ValueError: labels are wrong")

    first = await follow(backend, submission(), sink=ListSink())
    noted = backend.patches[-1]["metadata"]["annotations"]
    later = showing(Observation(job=job("Failed", annotations=noted)))
    second = await follow(later, submission(), sink=ListSink())

    assert "ValueError: labels are wrong" in diagnosis_of(first).summary
    assert second.diagnosis == first.diagnosis
    assert later.patches == []


@pytest.mark.parametrize("source", ["the pod", "the log"])
async def test_a_known_secret_is_masked_before_the_words_around_it_are_shortened(source: str) -> None:
    """A token may be longer than the line that a diagnosis quotes; its first half alone would not be recognised."""
    token, backend = "hunter2-" * 200, ScriptedBackend()
    ended = exited(1, f"refused: {token}" if source == "the pod" else "")
    backend.worlds = [Observation(job=job("Failed"), pods=[pod(MASTER, ended, phase="Failed")])]
    backend.lines = written(f"refused: {token}")

    conclusion = await follow(backend, submission(), sink=ListSink(), mask=lambda text: text.replace(token, "***"))

    assert "refused: ***" in diagnosis_of(conclusion).summary
    assert "hunter2" not in str(conclusion.to_dict())
    assert "hunter2" not in str(backend.patches)


@pytest.mark.parametrize("leave_stuck", [False, True])
async def test_a_deadline_stops_the_job_and_tells_the_last_lines(*, leave_stuck: bool) -> None:
    """The provider ends a hang, and the last lines show where the program hung; also of a job that it only follows."""
    backend = showing(Observation(job=job("Running"), pods=[pod(MASTER, RUNS), pod(WORKER, RUNS)]))
    backend.lines = written("epoch 1", "waiting for rank 1")

    conclusion = await follow(
        backend, submission(), sink=ListSink(), leave_stuck=leave_stuck, deadline=NOON, clock=lambda: NOON
    )

    assert backend.deleted == [REF]
    assert conclusion.status.phase is JobPhase.FAILED
    with pytest.raises(JobTimedOut, match=r"(?s)^team/digits.*waiting for rank 1"):
        raise_for(submission().ref, conclusion)


async def test_a_deletion_that_the_watch_shows_before_it_is_answered_is_ours() -> None:
    backend = showing(Observation(job=job("Running"), pods=[pod(MASTER, RUNS)]))
    answered = asyncio.Event()

    async def watch_that_ends(ref: JobRef) -> AsyncIterator[Observation]:
        yield backend.worlds[-1]
        while not backend.deleted:  # noqa: ASYNC110 - the list is all there is
            await asyncio.sleep(0.1)
        yield Observation(job=None)

    async def late_answer(ref: JobRef, **_: Any) -> None:
        backend.deleted.append(ref)
        await answered.wait()

    backend.watch, backend.delete = watch_that_ends, late_answer  # type: ignore[method-assign, assignment]

    conclusion = await follow(backend, submission(), sink=ListSink(), deadline=NOON, clock=lambda: NOON)

    assert (conclusion.outcome, conclusion.is_open) == (Outcome.TIMED_OUT, False)


async def test_the_last_lines_at_a_deadline_are_those_of_the_replica_that_ran() -> None:
    """They are read before the job is deleted, because its log goes with it."""
    backend = showing(Observation(job=job("Running"), pods=[pod(WORKER, RUNS)]))
    backend.lines = written("waiting for rank 0")

    why = diagnosis_of(await follow(backend, submission(), sink=ListSink(), deadline=NOON, clock=lambda: NOON))

    assert (why.replica, why.tail_of) == (WORKER, "")
    assert why.log_tail == ("waiting for rank 0",)


async def test_a_job_that_succeeded_while_nobody_followed_is_no_timeout() -> None:
    """A follower that starts after the deadline, as after an outage of all triggerers, first checks the job."""
    backend = showing(Observation(job=job("Running", "Succeeded")))
    backend.seconds_to_first_world = 0.05

    conclusion = await follow(backend, submission(), sink=ListSink(), deadline=NOON, clock=lambda: NOON)

    assert (conclusion.outcome, backend.deleted) == (Outcome.SUCCEEDED, [])


@each_row(
    ("seconds", "hands_off", "outcome"),
    [(-60, False, Outcome.TIMED_OUT), (-60, True, Outcome.DELETED), (60, False, Outcome.DELETED)],
)
async def test_a_job_that_is_gone_after_its_deadline_was_timed_out(
    seconds: int, outcome: Outcome, *, hands_off: bool
) -> None:
    """A follower was killed right after it had deleted the job. Otherwise, or before the deadline, others did it."""
    backend = showing(Observation(job=None))
    deadline = NOON + timedelta(seconds=seconds)

    conclusion = await follow(
        backend, submission(), sink=ListSink(), deadline=deadline, clock=lambda: NOON, hands_off=hands_off
    )

    assert conclusion.outcome is outcome


async def test_an_error_of_the_sink_takes_no_verdict_from_a_job(caplog: pytest.LogCaptureFixture) -> None:
    class FailingSink(ListSink):
        def line(self, line: LogLine) -> None:
            raise BrokenPipeError("the log is closed")

    backend = showing(Observation(job=job("Running", "Succeeded")))
    backend.lines = written("epoch 1")

    conclusion = await follow(backend, submission(), sink=FailingSink())

    assert conclusion.outcome is Outcome.SUCCEEDED
    assert "team/digits: rank 0's log could not be copied any more: BrokenPipeError('the log is closed')" in caplog.text


async def test_a_follower_that_is_cancelled_while_its_log_ends_stops() -> None:
    """As a task that is told to stop just then."""
    backend, began = showing(Observation(job=job("Running", "Succeeded"))), asyncio.Event()

    async def log_that_ends_slowly(*_: Any, **__: Any) -> AsyncIterator[LogLine]:
        try:
            for line in written("epoch 1"):
                yield line
            await asyncio.Event().wait()
        finally:
            began.set()
            await asyncio.sleep(5)

    backend.logs = log_that_ends_slowly  # type: ignore[assignment]
    following = asyncio.create_task(follow(backend, submission(), sink=ListSink()))
    await began.wait()
    following.cancel()

    with pytest.raises(asyncio.CancelledError):
        await following


@pytest.mark.parametrize("hands_off", [False, True])
async def test_a_job_past_its_own_deadline_is_changed_so_that_its_operator_checks_it(*, hands_off: bool) -> None:
    """The operator checks a job only when it changes.

    Until it has done so, the provider's own job is changed now and then.
    """
    running = job("Running") | {"spec": {"runPolicy": {"activeDeadlineSeconds": 60}}}
    backend = showing(*[Observation(job=running, pods=[pod(MASTER, RUNS)])] * 20, Observation(job=job("Failed")))

    await follow(backend, submission(), sink=ListSink(), hands_off=hands_off, clock=ticking(after=30))

    written = [patch["metadata"]["annotations"].get(OVERDUE_ANNOTATION) for patch in backend.patches]
    instants = [datetime.fromisoformat(text) for text in written if text]
    assert bool(instants) is not hands_off
    assert all(at > NOON + timedelta(seconds=60) for at in instants)
    assert all(later - earlier >= timedelta(seconds=30) for earlier, later in pairwise(instants))


async def test_a_job_that_cannot_get_on_is_left_as_it_is_on_request() -> None:
    """A command that only follows a job deletes nothing: neither its log nor its pods' events."""
    backend, sink = showing(Observation(job=job("Created"), pods=[STUCK])), ListSink()
    backend.log_hangs = True

    conclusion = await follow(backend, submission(), sink=sink, leave_stuck=True, clock=lambda: NOON)

    assert (conclusion.outcome, backend.deleted, backend.patches) == (Outcome.FAILED, [], [])
    assert sink.notices == [f"{REF} is still there: ptjob get digits; delete it: ptjob delete digits"]
    with pytest.raises(JobFailed, match=r"was given up: .*InvalidImageName: must be lowercase") as failed:
        raise_for(REF, conclusion)
    assert (failed.value.status.phase, "retry" in str(failed.value)) == (JobPhase.PENDING, False)


@pytest.mark.parametrize(("options", "pods"), [({"deadline": NOON}, []), ({}, [STUCK])])
async def test_a_job_that_a_later_try_has_adopted_is_not_stopped(options: FollowOptions, pods: list[Manifest]) -> None:
    """The follower was frozen while the orchestrator began the later try; neither its deadline nor a limit counts."""
    backend = showing(Observation(job=job("Created", annotations={ADOPTED_ANNOTATION: "try 2"}), pods=pods))

    with pytest.raises(JobTakenOver, match=r"team/digits was not stopped \(.*\): a later try follows it"):
        await follow(backend, submission(), sink=ListSink(), clock=lambda: NOON, **options)

    assert backend.deleted == []


async def test_the_try_that_has_adopted_a_job_stops_it() -> None:
    """Its note may be on the job or, if it was refused, the note of the try before."""
    adopted = replace(submission(), adopted_by=("try 1", "try 2"))
    for note in ("try 1", "try 2"):
        backend = showing(Observation(job=job("Running", annotations={ADOPTED_ANNOTATION: note})))
        conclusion = await follow(backend, adopted, sink=ListSink(), deadline=NOON, clock=lambda: NOON)
        assert (conclusion.outcome, backend.deleted) == (Outcome.TIMED_OUT, [REF])


async def test_a_person_who_follows_a_job_takes_it_from_no_try() -> None:
    """`ptjob follow --timeout` stops the job as it was then; a try that adopts it afterwards keeps it."""
    found = elastic(job("Running", annotations={ADOPTED_ANNOTATION: "try 2"}), workers=1, generation=1)
    beside = Submission.of(found)
    assert not beside.is_taken_over(found)
    assert beside.is_taken_over(job("Running", annotations={ADOPTED_ANNOTATION: "try 3"}))


@pytest.mark.parametrize("lines", [[], written("no data left")], ids=["silent", "with last lines"])
async def test_the_advice_about_a_deleted_job_does_not_lead_to_its_log(lines: list[LogLine]) -> None:
    """The log is deleted with the job; what was read of it before is shown."""
    crashed = started_again(pod(WORKER, exited(3)), {}, count=5)
    backend, sink = showing(Observation(job=job("Running"), pods=[pod(MASTER, RUNS), crashed])), ListSink()
    backend.lines = lines

    why = diagnosis_of(await follow(backend, submission(), sink=sink, limits=Limits(), clock=lambda: NOON))

    assert (why.cause, backend.deleted) == (Cause.CRASH_LOOP, [REF])
    said = "See its last lines" if lines else "Its log is gone with the job"
    assert why.resolution == f"{said}; restarting it did not help so far"
    assert any("only this message remains of it" in text for text in sink.notices)


@pytest.mark.parametrize("hands_off", [False, True])
async def test_advice_about_a_wait_is_given_once(*, hands_off: bool) -> None:
    """It is given while it can still help, with the time limit of the wait, unless the job belongs to somebody else."""
    sink = ListSink()
    pulls = [{"waiting": {"reason": "ErrImagePull", "message": f"{image}: not found"}} for image in ("one", "other")]
    worlds = [Observation(job=job("Created"), pods=[pod(MASTER, pull, phase="Pending")]) for pull in pulls]
    backend = showing(*[worlds[0]] * 4, *[worlds[1]] * 4, Observation(job=job("Succeeded")))

    await follow(backend, submission(), sink=sink, hands_off=hands_off, clock=ticking())

    first, second = (text for text in sink.notices if "waits" in text)
    until = "" if hands_off else "; given up after 20 min (start timeout)"
    assert first.endswith(f"one: not found. Correct the image's name or tag{until}")
    assert second.endswith("other: not found")


@pytest.mark.parametrize(("reason", "kept"), [("ErrImagePull", ["ErrImagePull"]), ("ContainerCreating", [])])
async def test_the_reason_that_holds_a_job_back_is_stored_on_it_once(reason: str, kept: list[str]) -> None:
    """No container has ended yet, which is when the record is stored otherwise. A slow start is not stored."""
    held = [pod(MASTER, {"waiting": {"reason": reason, "message": text}}, phase="Pending") for text in ("one", "two")]
    worlds = [Observation(job=job("Created"), pods=[each]) for each in held for _ in range(4)]
    backend = showing(*worlds, Observation(job=job("Succeeded")))

    await follow(backend, submission(), sink=ListSink(), clock=ticking())

    texts = [change["metadata"]["annotations"][RECORD_ANNOTATION] for change in backend.patches]
    assert [from_text(text).waiting[0].reason for text in texts] == kept


@pytest.mark.parametrize(("sizes", "said"), [((2, 1), ""), ((1, 2), "1 of 2 placed")], ids=["shrinks", "grows"])
async def test_an_elastic_job_has_as_many_replicas_as_its_object_says(sizes: tuple[int, int], said: str) -> None:
    """The job is scaled while it is followed: a removed replica is not waited for, an added one is."""
    sink = ListSink()
    scaled = [elastic(job("Running"), size, generation) for generation, size in enumerate(sizes, start=1)]
    pods = [pod(f"digits-worker-{index}", RUNS) for index in range(2)]
    later = Observation(job=scaled[1], pods=pods[:1])
    done = Observation(job=elastic(job("Succeeded"), sizes[1], 2))
    backend = showing(Observation(job=scaled[0], pods=pods[: sizes[0]]), later, later, later, done)
    asked = replace(submission(), ranks={f"digits-worker-{index}": index for index in range(sizes[0])})

    result = result_of(await follow(backend, asked, sink=sink, clock=ticking()))

    assert result["gpu_seconds"] == sizes[1] * result["run_seconds"] > 0
    assert [text.partition("waits: ")[2] for text in sink.notices if "waits" in text] == ([said] if said else [])


async def test_the_output_report_is_stored_on_the_job_for_later_readers() -> None:
    """The claim is not inspected again; a job that cannot be patched has succeeded all the same; remarks are logged."""
    backend, sink = showing(Observation(job=job("Succeeded"))), ListSink()
    backend.report = found(problem="one file was not read")

    first = await follow(backend, submission(model=True), sink=sink)
    (noted,) = [change["metadata"]["annotations"][REPORT_ANNOTATION] for change in backend.patches]
    backend.patch_error = ClusterError("forbidden", code=403)
    again = await follow(backend, submission(model=True), sink=sink)

    assert read_report(noted, submission(model=True).outputs) == backend.report
    assert [result_of(each)["model"]["sha256"] for each in (first, again)] == ["ab", "ab"]
    assert any(text.endswith(": one file was not read") for text in sink.notices)
    raise_for(REF, again)


async def test_outputs_that_nobody_could_look_at_are_another_error() -> None:
    """The training is not repeated for it."""
    backend = showing(Observation(job=job("Succeeded")))
    backend.report = OutputsNotVerified("the node is gone")

    conclusion = await follow(backend, submission(model=True), sink=ListSink())

    assert conclusion.outcome is Outcome.UNVERIFIED
    message = r"could not be looked at: the node is gone.*not train again"
    with pytest.raises(OutputsNotVerified, match=message) as caught:
        raise_for(submission(model=True).ref, conclusion)
    assert caught.value.retryable


async def test_outputs_about_which_nothing_is_reported_are_not_verified() -> None:
    """The training is not repeated for it, and the follower does not end in an exception."""
    backend = showing(Observation(job=job("Succeeded")))
    backend.report = OutputReport()

    conclusion = await follow(backend, submission(model=True), sink=ListSink())

    assert conclusion.outcome is Outcome.UNVERIFIED
    assert "nothing was reported about its model" in conclusion.detail


async def test_a_missing_model_is_reported_with_the_traceback_in_the_log() -> None:
    """A program ends with 0 after an exception in a thread."""
    backend = showing(Observation(job=job("Succeeded")))
    backend.report = OutputReport(model=OutputFacts(exists=False))
    backend.lines = written(
        "Traceback (most recent call last):", '  File "t.py", line 3, in save', "OSError: disk full"
    )

    conclusion = await follow(backend, submission(model=True), sink=ListSink())

    why = diagnosis_of(conclusion)
    assert why.cause is Cause.OUTPUTS
    assert "its log has a traceback that ends with OSError: disk full" in why.summary
    with pytest.raises(JobFailed, match=r"pvc://c/m\.pt"):
        raise_for(REF, conclusion)


async def test_a_log_that_cannot_be_read_never_decides_the_verdict() -> None:
    backend, sink = showing(Observation(job=job("Succeeded"))), ListSink()
    backend.log_error = ClusterError("pods/log forbidden", code=403)

    conclusion = await follow(backend, submission(), sink=sink, api_error_timeout=0)

    assert conclusion.outcome is Outcome.SUCCEEDED
    assert any("cannot be read any more" in text and "pods/log forbidden" in text for text in sink.notices)


@pytest.mark.parametrize(("lines", "missing"), [(["one"], "wrote after 2026-11-20T12:00:11.5Z"), ([], "wrote")])
async def test_a_log_that_never_ends_is_not_waited_for_without_limit(
    monkeypatch: pytest.MonkeyPatch, lines: list[str], missing: str
) -> None:
    monkeypatch.setattr("ptjob_provider.core.run.follow._DRAIN_TIMEOUT", 0.5)  # waiting 30 s would test nothing more
    backend, sink = showing(Observation(job=job("Succeeded"))), ListSink()
    backend.lines, backend.log_hangs = written(*lines), True

    conclusion = await follow(backend, submission(), sink=sink)

    assert conclusion.outcome is Outcome.SUCCEEDED
    assert any(text.endswith(f"; what it {missing} may be missing here") for text in sink.notices)


async def test_cancelling_leaves_the_job_alone() -> None:
    """A worker that is terminated checks first whether to delete the job."""
    backend = showing(Observation(job=job("Running")))
    backend.log_hangs = True
    following = asyncio.create_task(follow(backend, submission(), sink=ListSink()))
    await asyncio.sleep(0.05)

    following.cancel()

    with pytest.raises(asyncio.CancelledError):
        await following
    assert backend.deleted == []


async def test_the_rest_of_a_log_is_read_as_long_as_it_comes() -> None:
    """The outcome is known: an API server or a node that does not answer must not hold it up."""
    backend, sink = ScriptedBackend(), ListSink()
    backend.lines = written("one", "two", "three")
    backend.seconds_between_lines = 40

    await catch_up(backend, submission(), sink=sink, cursor=None)
    backend.seconds_between_lines = 3600
    async with asyncio.timeout(100):
        await catch_up(backend, submission(), sink=sink, cursor=backend.lines[0].cursor)

    assert sink.lines == ["one", "two", "three"]
    assert "(nothing came for 60 s); the last line that was read is of 2026-11-20T12:00:11.5Z" in sink.notices[0]


@pytest.mark.parametrize(("lines", "said"), [(written("one"), "12:00:11.5Z"), ([], "no line had been read")])
async def test_a_log_that_went_with_its_pod_is_stated(lines: list[LogLine], said: str) -> None:
    backend, sink = ScriptedBackend(), ListSink()
    backend.log_error = ClusterError("pod not found", code=404)

    await catch_up(backend, submission(), sink=sink, cursor=lines[0].cursor if lines else None)

    assert said in sink.notices[0]


def test_the_report_of_a_failed_job_that_is_deleted_now_does_not_lead_to_its_log() -> None:
    """With `on_finish_action=delete_job`."""
    why = Diagnosis.of(Cause.EXIT_CODE, "worker-0 exited with code 3", replica=WORKER)
    conclusion = JobOutcome(outcome=Outcome.FAILED, status=JobStatus(phase=JobPhase.FAILED), diagnosis=why)

    with pytest.raises(JobFailed, match="See its log"):
        raise_for(REF, conclusion)
    with pytest.raises(JobFailed, match="Its log is gone with the job"):
        raise_for(REF, conclusion, deletes=True)


def test_a_failure_that_nobody_could_explain_is_still_a_failure() -> None:
    conclusion = JobOutcome(outcome=Outcome.FAILED, status=JobStatus(phase=JobPhase.FAILED))

    with pytest.raises(JobFailed, match="team/digits"):
        raise_for(submission().ref, conclusion)


def test_a_deadline_is_an_instant_that_every_process_agrees_on() -> None:
    """It is counted from the task's start, which survives deferral."""
    assert deadline_after(NOON, timedelta(minutes=5)) == NOON + timedelta(minutes=5)
    assert deadline_after(None, timedelta(minutes=5)) is None
    assert deadline_after(NOON, None) is None
    assert deadline_after(NOON, timedelta.max) is None


async def test_a_cause_that_ends_after_its_consequence_is_still_the_cause() -> None:
    """Rank 0 lost its peer and ended first; the peer's exception follows a moment later."""
    victim = pod(MASTER, exited(1, LOST), phase="Failed")
    backend = showing(
        Observation(job=job("Failed"), pods=[victim, pod(WORKER, RUNS)]),
        Observation(job=job("Failed"), pods=[victim, pod(WORKER, exited(1, RAISED), phase="Failed")]),
    )
    backend.pods_stay = 1

    why = diagnosis_of(await follow(backend, submission(), sink=ListSink()))

    assert (why.replica, why.collateral) == (WORKER, (MASTER,))


async def test_somebody_elses_job_is_only_watched() -> None:
    """Its annotations and replicas are not changed, and no limit of the follower ends it."""
    crashed = started_again(pod(WORKER, exited(3)), {}, count=5)
    backend = showing(
        Observation(job=job("Running"), pods=[pod(MASTER, RUNS), crashed]),
        Observation(job=job("Failed"), pods=[pod(MASTER, RUNS), pod(WORKER, exited(1, "x"), phase="Failed")]),
    )
    backend.pods_stay, backend.server, backend.uses = 1000, backend.worlds[0], USED

    conclusion = await follow(
        backend,
        submission(model=True),
        sink=ListSink(),
        hands_off=True,
        deadline=NOON,
        limits=Limits(),
        clock=lambda: NOON,
    )

    assert conclusion.outcome is Outcome.FAILED
    assert (backend.patches, backend.deleted) == ([], [])
