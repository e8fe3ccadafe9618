"""Tests of `on_finish_action`: what happens to an ended job after its log, history and outputs are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, TaskDeferred

from airflow_adapter.stand_ins import StandInTaskInstance, context, end_job, event_of, job_object, operator, submitted
from ptjob_provider.core.errors import ClusterUnavailable
from ptjob_provider.core.run.orphans import LEAVE_RUNNING_ANNOTATION
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.run.submit import Submission

if TYPE_CHECKING:
    from airflow_adapter.stand_ins import FakeComms
    from fakes import ScriptedBackend

MANIFEST = {**job_object(), "metadata": {"name": "digits"}, "status": {}}
WEEK = {"spec": {"runPolicy": {"ttlSecondsAfterFinished": 7 * 24 * 3600}}}

pytestmark = pytest.mark.usefixtures("comms")


def ended(backend: ScriptedBackend, given: dict[str, Any], condition: str, **arguments: Any) -> None:
    """Submit a job and end it."""
    submitted(backend, given, **arguments)
    end_job(backend, condition)


@pytest.mark.parametrize(
    ("action", "condition", "kept"),
    [
        ("keep_job", "Succeeded", True),
        ("keep_job", "Failed", True),
        ("delete_job", "Succeeded", False),
        ("delete_job", "Failed", False),
        ("delete_succeeded_job", "Succeeded", False),
        ("delete_succeeded_job", "Failed", True),
    ],
)
def test_the_action_decides_whether_an_ended_job_stays(
    backend: ScriptedBackend, action: str, condition: str, *, kept: bool
) -> None:
    given = context()
    ended(backend, given, condition)
    task = operator(on_finish_action=action)

    if condition == "Failed":
        with pytest.raises(AirflowException, match="default/train"):
            task.execute(given)
    else:
        assert task.execute(given)["phase"] == "Succeeded"

    assert bool(backend.jobs) is kept


@pytest.mark.parametrize("action", ["keep_job", "delete_job"])
def test_a_task_that_had_deferred_acts_the_same(backend: ScriptedBackend, action: str) -> None:
    given = context()
    ended(backend, given, "Succeeded")
    (job,) = backend.jobs.values()
    event = event_of(Submission.of(job), Outcome.SUCCEEDED, result={"phase": "Succeeded"})

    operator(on_finish_action=action).execute_complete(given, event)

    assert bool(backend.jobs) is (action == "keep_job")


@pytest.mark.parametrize(("action", "times"), [("keep_job", 3), ("delete_job", 2)])
def test_the_tensorboard_of_a_kept_job_is_ensured_again_at_its_end(
    backend: ScriptedBackend, action: str, times: int
) -> None:
    """The TensorBoard is ensured at creation, adoption and the end of a kept job: the next job may need its claim."""
    given, shown = context(), {"tensorboard": {"logdir": "pvc://models/logs"}}
    ended(backend, given, "Succeeded", **shown)

    operator(on_finish_action=action, **shown).execute(given)

    assert len(backend.tensorboards_ensured) == times


@pytest.mark.parametrize("url", ["http://10.0.0.7:30131/", ""])
def test_a_tensorboard_that_a_task_leaves_is_said_to_stay(
    backend: ScriptedBackend, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    """Its task does not wait for the job."""
    backend.tensorboard_url = url

    submitted(backend, context(), tensorboard={"logdir": "pvc://models/logs"})

    assert ("its TensorBoard runs until the job is deleted" in capsys.readouterr().out) is bool(url)


def test_a_try_after_a_succeeded_job_was_deleted_does_not_train_again(backend: ScriptedBackend) -> None:
    """A worker may die between the deletion and its report; the result is stored."""
    given = context(StandInTaskInstance(max_tries=1))
    ended(backend, given, "Succeeded")
    first = operator(on_finish_action="delete_job").execute(given)

    second = operator(on_finish_action="delete_job").execute(given)

    assert second == first
    assert backend.created == 1


def test_a_kept_job_of_a_manifest_without_a_time_to_live_is_given_a_week(backend: ScriptedBackend) -> None:
    """The manifest is sent unchanged; the time to live is added when the job has ended."""
    given = context()
    ended(backend, given, "Succeeded", manifest=MANIFEST, image=None)

    operator(manifest=MANIFEST, image=None).execute(given)

    assert WEEK in backend.patches
    assert backend.jobs


def test_a_time_to_live_that_was_chosen_is_left_as_it_is(backend: ScriptedBackend) -> None:
    given = context()
    ended(backend, given, "Succeeded", ttl_seconds_after_finished=60)

    operator().execute(given)

    assert WEEK not in backend.patches


def test_a_deletion_that_fails_does_not_fail_a_task_whose_job_succeeded(backend: ScriptedBackend) -> None:
    """The time to live deletes the job later."""
    given = context()
    ended(backend, given, "Succeeded")
    backend.refusals["delete"] = [ClusterUnavailable("no answer")] * 9

    assert operator(on_finish_action="delete_job").execute(given)["phase"] == "Succeeded"


@pytest.mark.parametrize(
    ("arguments", "mark"),
    [({"wait_for_completion": False}, "job"), ({"keep_running_pods": True}, "pods"), ({}, None)],
)
def test_a_job_that_may_run_on_without_its_task_is_annotated(
    backend: ScriptedBackend, comms: FakeComms, arguments: dict[str, Any], mark: str | None
) -> None:
    given = context()
    task = operator(deferrable=True, annotations={"team": "vision"}, **arguments)
    if arguments.get("wait_for_completion", True):
        with pytest.raises(TaskDeferred):
            task.execute(given)
    else:
        task.execute(given)

    (job,) = backend.jobs.values()
    assert job["metadata"]["annotations"].get(LEAVE_RUNNING_ANNOTATION) == mark
    assert job["metadata"]["annotations"]["team"] == "vision"
