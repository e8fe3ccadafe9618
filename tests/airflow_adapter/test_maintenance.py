"""Tests of the maintenance task: it reads task states from Airflow and survives errors of single jobs."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse, GetTaskStates, TaskStatesResult

from airflow_adapter.stand_ins import FakeComms, StandInTaskInstance, job_object
from ptjob_provider.airflow import maintenance
from ptjob_provider.airflow.task_session import owner_of
from ptjob_provider.core.errors import PermissionDenied
from ptjob_provider.core.identity import (
    MANAGED_LABEL,
    OWNER_ANNOTATION,
    UNFOLLOWED_ANNOTATION,
    Instance,
    owner_annotation,
)
from ptjob_provider.core.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fakes import ScriptedBackend


pytestmark = pytest.mark.usefixtures("airflow")


class CommsThatKnow(FakeComms):
    """A fake Airflow with these task instances: run → name → state."""

    def __init__(self, states: dict[str, dict[str, str | None]]) -> None:
        super().__init__()
        self.states = states

    def send(self, message: Any) -> Any:
        """Answer as Airflow's execution API does: only requested task instances that exist."""
        assert isinstance(message, GetTaskStates)
        self.questions.append(message)
        if self.refuses:
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": 500}))
        wanted = {run: self.states[run] for run in message.run_ids or () if run in self.states}
        return TaskStatesResult(task_states=wanted)


def with_job(backend: ScriptedBackend, name: str = "digits", *, namespace: str = "team", **ids: Any) -> None:
    """Add a running job of a task instance."""
    owner = owner_of(Instance("tests"), StandInTaskInstance(**ids))
    annotations = {"ptjob-provider/owner": owner_annotation(owner, 1)}
    meta = {"namespace": namespace, "labels": {MANAGED_LABEL: "true"}, "annotations": annotations}
    backend.jobs[namespace, name] = job_object(name, **{"uid": f"uid-{name}-{namespace}", **meta})


def swept(*namespaces: str, **how: Any) -> list[dict[str, Any]]:
    """Execute the maintenance task."""
    return maintenance.stop_orphans(namespaces=namespaces or ["team"], grace=timedelta(), **how)


@pytest.fixture
def airflow() -> Iterator[CommsThatKnow]:
    """Return an Airflow without task instances."""
    from airflow.sdk.execution_time.supervisor import set_supervisor_comms  # noqa: PLC0415 - not without Airflow

    fake = CommsThatKnow({})
    with set_supervisor_comms(fake):
        yield fake


@pytest.mark.parametrize(
    ("ids", "states", "why"),
    [
        ({}, {"run-1": {"train": "running"}}, None),
        ({}, {"run-1": {"train": "failed"}}, "its task is failed"),
        ({}, {"run-1": {"other": "running"}}, "its task instance is gone"),
        ({}, {}, "its task instance is gone"),
        ({}, {"run-1": {"train": None}}, "its task has no state: it was cleared, or reset by a scheduler"),
        ({"map_index": 3}, {"run-1": {"train_3": "deferred", "train_4": "failed"}}, None),
        ({"map_index": 3}, {"run-1": {"train_3": "success", "train_4": "running"}}, "its task is success"),
    ],
)
def test_the_state_is_that_of_the_jobs_own_task_instance(
    backend: ScriptedBackend,
    airflow: CommsThatKnow,
    ids: dict[str, Any],
    states: dict[str, dict[str, str | None]],
    why: str | None,
) -> None:
    """Mapped or not; one that is missing or has no state does not wait, but it may do so a moment later."""
    airflow.states = states
    with_job(backend, **ids)

    found = swept()

    assert [each["why"] for each in found] == ([why] if why else [])
    assert bool(backend.jobs) is (why is None or "is gone" in why or "no state" in why)
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(("grace", "kept"), [("", True), ("3600", True), ("60", False)])
def test_a_job_that_could_not_be_followed_is_spared_as_long_as_the_installation_says(
    backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch, grace: str, *, kept: bool
) -> None:
    """The default is one day."""
    if grace:
        monkeypatch.setenv("AIRFLOW__PTJOB__ORPHAN_GRACE", grace)
    with_job(backend)
    left_at = datetime.now(UTC) - timedelta(minutes=30)
    (found,) = backend.jobs.values()
    found["metadata"]["annotations"][UNFOLLOWED_ANNOTATION] = left_at.isoformat()

    swept()

    assert bool(backend.jobs) is kept


@pytest.mark.parametrize(
    "edited",
    [{"map_index": "x"}, {"map_index": [3]}, {"map_index": float("inf")}, {"dag_id": 5}, {"run_id": ["run-1"]}],
)
def test_a_job_whose_ids_are_those_of_no_task_instance_is_kept_and_hides_no_other_job(
    backend: ScriptedBackend, airflow: CommsThatKnow, edited: dict[str, Any]
) -> None:
    """Anybody who may edit jobs can write anything there."""
    airflow.states = {"run-1": {"train": "failed"}}
    with_job(backend, "edited")
    with_job(backend, "orphan")
    annotations = backend.jobs["team", "edited"]["metadata"]["annotations"]
    owner = json.loads(annotations[OWNER_ANNOTATION])
    annotations[OWNER_ANNOTATION] = json.dumps({**owner, "ids": {**owner["ids"], **edited}})

    found = {each["name"]: each for each in swept()}

    assert "whether its task waits is not known" in found["edited"]["error"]
    assert found["orphan"]["stopped"]
    assert [name for _, name in backend.jobs] == ["edited"]


def test_an_airflow_that_does_not_answer_loses_no_job(backend: ScriptedBackend, airflow: CommsThatKnow) -> None:
    """The task continues and logs the jobs whose state it could not read."""
    airflow.refuses = True
    with_job(backend)

    (found,) = swept()

    assert "Airflow did not answer" in found["error"]
    assert backend.jobs


def test_a_dry_run_stops_nothing_and_says_whose_it_is(
    backend: ScriptedBackend, caplog: pytest.LogCaptureFixture
) -> None:
    with_job(backend)

    with caplog.at_level(logging.INFO):
        swept(dry_run=True)

    assert "team/digits, Pending, of dag_id=training, run_id=run-1, task_id=train, was left as it is" in caplog.text
    assert backend.jobs


@pytest.mark.parametrize("namespaces", [("team", "vision"), ("vision", "team")])
def test_jobs_of_every_namespace_are_judged_by_their_own_tasks(
    backend: ScriptedBackend, airflow: CommsThatKnow, namespaces: tuple[str, str]
) -> None:
    """Also for two jobs of the same name; other namespaces are not touched."""
    airflow.states = {"run-1": {"train": "running"}, "run-2": {"train": "failed"}}
    with_job(backend, namespace="team", run_id="run-1")
    with_job(backend, namespace="vision", run_id="run-2")
    with_job(backend, namespace="speech", run_id="run-2")

    found = swept(*namespaces)

    assert [(each["namespace"], each["why"], each["stopped"]) for each in found] == [
        ("vision", "its task is failed", True)
    ]
    assert [namespace for namespace, _ in backend.jobs] == ["team", "speech"]


def test_a_namespace_that_cannot_be_listed_does_not_hide_the_next_one(
    backend: ScriptedBackend, airflow: CommsThatKnow
) -> None:
    """The other namespaces are swept, and then the task fails: an incomplete sweep must not look like a success."""
    airflow.states = {"run-1": {"train": "failed"}}
    with_job(backend, namespace="vision")
    backend.refusals["list"] = [PermissionDenied("list pytorchjobs: forbidden", code=403)] * len(KINDS)

    with pytest.raises(AirflowException, match="list pytorchjobs: forbidden"):
        swept("team", "vision")

    assert not backend.jobs
