"""Tests of reading a job once: messages for one that waits, has failed, wrote nothing or is gone.

The back-end is scripted.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from core.test_follow import NOON, showing
from core.test_follow import job as followed_job
from ptjob_provider.core.backend import Observation
from ptjob_provider.core.diagnosis import Cause
from ptjob_provider.core.errors import ClusterUnavailable, JobNotFound, OutputsNotVerified
from ptjob_provider.core.history import PodHistory, Termination, to_text
from ptjob_provider.core.identity import OUTPUTS_ANNOTATION, OWNER_ANNOTATION, RECORD_ANNOTATION, REPORT_ANNOTATION
from ptjob_provider.core.outputs.contract import OutputFacts, OutputReport, report_text
from ptjob_provider.core.run.snapshot import look, owner_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakes import ScriptedBackend
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.run.snapshot import Snapshot

NOW = NOON + timedelta(minutes=10)
MODEL = {"uri": "pvc://models/m.pt", "claim": "models", "path": "m.pt", "container_path": "/models/m.pt"}
GOOD_MODEL = OutputFacts(exists=True, bytes=10, sha256="ab", modified_at=NOW.timestamp())


def job(condition: str | None = None, *, annotations: dict[str, str] | None = None) -> Manifest:
    """Return a job of a master and a worker that declares a model, with this condition."""
    notes = {OUTPUTS_ANNOTATION: json.dumps({"model": MODEL}), **(annotations or {})}
    found = followed_job(*([condition] if condition else []), annotations=notes)
    found["metadata"]["labels"] = {"try_number": "2", "ptjob-provider/attempt": "3"}
    role = {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}}
    return found | {"spec": {"pytorchReplicaSpecs": {"Master": role, "Worker": role}}}


@pytest.mark.skips_waits
async def test_a_server_that_does_not_list_the_pods_is_not_waited_for_without_a_limit() -> None:
    """The job's object was read, but the watch repeats what the server refuses for a while."""
    backend = holding(job("Running"))
    backend.seconds_to_first_world = 24 * 3600

    with pytest.raises(ClusterUnavailable, match="team/digits: its pods could not be read within 60 s") as raised:
        await look(backend, "team", "digits")

    assert raised.value.retryable


def holding(job_now: Manifest, *, pods: Sequence[Manifest] = ()) -> ScriptedBackend:
    backend = showing(Observation(job=job_now, pods=pods))
    backend.jobs["team", "digits"] = job_now
    return backend


async def seen(
    job_now: Manifest, report: OutputReport | Exception | None = None, *, pods: Sequence[Manifest] = ()
) -> Snapshot:
    backend = holding(job_now, pods=pods)
    backend.report = report or OutputReport(model=GOOD_MODEL, tfevents=None)
    return await look(backend, "team", "digits", now=NOW)


async def test_a_job_that_succeeded_is_shown_with_its_outputs() -> None:
    """The result is the one that a task gets: the model's location, size and digest."""
    said = (await seen(job("Succeeded"))).to_dict()

    assert (said["phase"], said["attempt"], said["diagnosis"]) == ("Succeeded", 3, None)
    assert said["model"] == {**MODEL, "bytes": 10, "sha256": "ab", "in_doubt": False}


async def test_a_job_that_succeeded_without_its_model_is_shown_with_the_reason() -> None:
    """A missing declared output is a failure here as in the task."""
    snapshot = await seen(job("Succeeded"), OutputReport(model=OutputFacts(exists=False), tfevents=None))

    assert snapshot.diagnosis is not None
    assert (snapshot.diagnosis.cause, snapshot.to_dict()["model"]) == (Cause.OUTPUTS, None)


async def test_outputs_that_cannot_be_looked_at_do_not_hide_the_job() -> None:
    snapshot = await seen(job("Succeeded"), OutputsNotVerified("the claim is not mounted here"))

    assert (snapshot.report, snapshot.unverified) == (None, "the claim is not mounted here")


async def test_a_report_stored_by_the_jobs_task_is_shown_without_an_inspection() -> None:
    """On a cluster an inspection would start a pod."""
    report = OutputReport(model=GOOD_MODEL, tfevents=None)
    noted = job("Succeeded", annotations={REPORT_ANNOTATION: report_text(report)})

    snapshot = await seen(noted, OutputsNotVerified("nobody may ask"))

    assert snapshot.report == report


async def test_a_note_that_lacks_a_declared_output_is_not_taken_for_a_report() -> None:
    """Somebody has edited it; whoever looks at the job gets an answer all the same."""
    noted = job("Succeeded", annotations={REPORT_ANNOTATION: report_text(OutputReport())})

    again = await seen(noted)
    unanswered = await seen(noted, OutputReport())

    assert (again.report, again.diagnosis) == (OutputReport(model=GOOD_MODEL), None)
    assert (unanswered.report, unanswered.diagnosis) == (None, None)
    assert "nothing was reported about its model" in unanswered.unverified


@pytest.mark.parametrize("noted", [{}, {REPORT_ANNOTATION: "spoilt"}, {REPORT_ANNOTATION: "[1]"}])
async def test_outputs_are_looked_at_only_if_that_is_wanted(noted: dict[str, str]) -> None:
    """A sensor reads ended jobs, thousands of them; no waiting reason is requested of them either."""
    backend = holding(job("Succeeded", annotations=noted))
    backend.report = AssertionError("nobody may ask")

    snapshot = await look(backend, "team", "digits", inspect=False)

    assert (snapshot.report, snapshot.diagnosis, backend.asked_why) == (None, None, 0)


async def test_a_job_that_failed_is_diagnosed_from_its_record() -> None:
    """The pods are gone; their record still has the cause."""
    end = Termination(replica="digits-worker-0", key="k", container="pytorch", exit_code=137, reason="OOMKilled")
    record = to_text(PodHistory(terminations=(end,)))
    snapshot = await seen(job("Failed", annotations={RECORD_ANNOTATION: record}))

    assert snapshot.diagnosis is not None
    assert (snapshot.diagnosis.cause, snapshot.diagnosis.replica) == (Cause.OUT_OF_MEMORY, "digits-worker-0")
    assert snapshot.report is None


@pytest.mark.parametrize(
    ("name", "message", "advice"),
    [
        ("digits-worker-0", "", "See its log"),
        ("digits-master-0", "", "Its log is gone with its pod"),
        ("digits-master-0", "loading\n", "See its last lines"),
    ],
    ids=["there", "gone", "gone, with its last lines"],
)
async def test_the_advice_does_not_name_a_log_that_is_gone_with_its_pod(name: str, message: str, advice: str) -> None:
    """`ptjob logs` would refer back to `ptjob get`."""
    end = Termination(replica="digits-worker-0", key="k", container="pytorch", exit_code=3, message=message)
    failed = job("Failed", annotations={RECORD_ANNOTATION: to_text(PodHistory(terminations=(end,)))})
    pod = {"metadata": {"name": name, "uid": name}, "status": {"phase": "Failed"}}

    snapshot = await seen(failed, pods=[pod])

    assert snapshot.diagnosis is not None
    assert snapshot.diagnosis.resolution.startswith(advice)


QUEUED = {
    "metadata": {"uid": "w-1"},
    "involvedObject": {"kind": "Workload", "name": "pytorchjob-digits"},
    "reason": "Pending",
    "message": "insufficient unused quota for cpu",
}
NO_ROOM = {
    "metadata": {"uid": "e-1", "creationTimestamp": "2026-11-20T12:01:00Z"},
    "involvedObject": {"kind": "PyTorchJob", "name": "digits", "uid": "u-1"},
    "type": "Warning",
    "reason": "FailedCreatePod",
    "message": "exceeded quota: compute",
}
UNTOLD = {"metadata": {}, "reason": "NotApplied", "message": "cannot read why it waits: said 403"}


@pytest.mark.parametrize(
    ("condition", "event", "said"),
    [
        ("Suspended", QUEUED, "suspended by its queue: insufficient unused quota for cpu"),
        ("Created", NO_ROOM, "0 of 2 placed; not created: exceeded quota: compute"),
        (
            "Suspended",
            UNTOLD,
            "suspended: it waits for its queue, or for a person, to resume it; cannot read why it waits: said 403",
        ),
    ],
    ids=["queue", "quota", "forbidden"],
)
async def test_the_reason_of_a_waiting_job_is_in_its_first_snapshot(condition: str, event: Manifest, said: str) -> None:
    """The first snapshot of a watch does not have it; the watch reads it later."""
    backend = holding(job(condition))
    backend.reason_events = [event]

    snapshot = await look(backend, "team", "digits", now=NOW)

    assert snapshot.waiting == snapshot.to_dict()["waiting"] == said


async def test_a_job_without_declared_outputs_is_not_searched_for_any() -> None:
    """Anybody's job can be read."""
    plain = job("Succeeded")
    del plain["metadata"]["annotations"]

    snapshot = await seen(plain, OutputsNotVerified("nobody may ask"))

    assert (snapshot.report, snapshot.diagnosis, snapshot.to_dict()["owner"]) == (None, None, {})


async def test_a_job_that_is_deleted_while_one_looks_is_not_there() -> None:
    backend = holding(job("Running"))
    backend.worlds = [Observation(job=None)]

    with pytest.raises(JobNotFound, match="deleted just now"):
        await look(backend, "team", "digits")


@pytest.mark.parametrize(
    ("annotations", "labels", "owner"),
    [
        ({OWNER_ANNOTATION: '{"ids": {"dag_id": "d"}}'}, {"try_number": "2"}, {"dag_id": "d", "try_number": "2"}),
        ({OWNER_ANNOTATION: '{"ids": {"run": "4711"}}'}, {}, {"run": "4711"}),
        ({}, {"try_number": "2"}, {}),
        (None, None, {}),
    ],
)
def test_the_owner_is_read_whole_from_the_annotation(annotations: Any, labels: Any, owner: dict[str, str]) -> None:
    """Labels may be shortened; the annotation has the full ids."""
    assert owner_of({"metadata": {"annotations": annotations, "labels": labels}}) == owner
