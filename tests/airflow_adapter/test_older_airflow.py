"""Tests of replacements for features that older Airflows lack; on the newest Airflow these are hidden."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest
from airflow.sdk import Asset

from airflow_adapter.stand_ins import (
    OWNED,
    FakeComms,
    StandInTaskInstance,
    context,
    end_job,
    job_object,
    operator,
    trigger_of,
)
from ptjob_provider.airflow import compat, config
from ptjob_provider.core.errors import PermissionDenied
from ptjob_provider.core.installation_id import KEY_PREFIX

if TYPE_CHECKING:
    from fakes import ScriptedBackend


pytestmark = pytest.mark.usefixtures("comms")


@pytest.fixture(autouse=True)
def _older(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the features that Airflow 3.1 lacks."""
    monkeypatch.setattr(compat, "_IS_3_3", False)
    monkeypatch.setattr(compat, "HAS_STATE_STORE", False)
    monkeypatch.setattr(compat, "HAS_ON_KILL", False)
    monkeypatch.setattr(compat, "PATIENT_QUESTIONS", True)


def train(try_number: int, *, max_tries: int = 2, retries: int = 2, waits: bool = False) -> dict[str, Any]:
    """Run one try of a task without stored state of earlier tries."""
    given = context(StandInTaskInstance(try_number=try_number, max_tries=max_tries))
    given["task"].retries = retries
    result: dict[str, Any] = operator(wait_for_completion=waits).execute(given)
    return result


@pytest.mark.usefixtures("comms")
def test_a_retry_hands_on_the_success_that_airflow_has_not_heard_of(backend: ScriptedBackend) -> None:
    train(1)
    end_job(backend, "Succeeded")

    assert train(2, waits=True)["attempt"] == 1
    assert backend.created == 1


@pytest.mark.parametrize("kind", ["PyTorchJob", "TrainJob"])
def test_a_retry_waits_until_its_kind_may_be_listed(
    backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """One refusal of its kind, while other kinds answer, would start a second training beside that of attempt 2."""
    monkeypatch.setenv("AIRFLOW__PTJOB__KIND", kind)
    monkeypatch.setattr("ptjob_provider.core.run.api_errors._PAUSE", (0.01, 0.01))
    train(1)
    end_job(backend, "Failed")
    assert train(2)["attempt"] == 2
    backend.refusals[f"list {kind}"] = [PermissionDenied(f"cannot list {kind}s", code=403)]

    assert train(3)["attempt"] == 2
    assert [job["kind"] for job in backend.jobs.values()] == [kind]


@pytest.mark.parametrize("condition", [None, "Succeeded", "Failed"])
def test_a_cleared_task_trains_anew(backend: ScriptedBackend, condition: str | None) -> None:
    """The attempt number is that of the try that created the job; Airflow knows the last try before the clear."""
    train(1)
    if condition:
        end_job(backend, condition)

    assert train(2, max_tries=3)["attempt"] == 2


@pytest.mark.parametrize("has_mark", [True, False])
def test_a_running_job_is_adopted_and_that_is_said_if_no_clear_is_proved(
    backend: ScriptedBackend, caplog: pytest.LogCaptureFixture, *, has_mark: bool
) -> None:
    """Somebody has lowered `retries` between two tries: by count, the first try is one before a clear."""
    train(1, max_tries=3, retries=3)
    (job,) = backend.jobs.values()
    if not has_mark:
        del job["metadata"]["labels"]["max_tries"]

    assert train(2, max_tries=3, retries=1)["attempt"] == 1
    assert (backend.created, backend.deleted) == (1, [])
    assert f"{job['metadata']['name']} still runs and is adopted" in caplog.text


def test_a_task_that_succeeded_trains_anew_after_a_clear_with_fewer_retries(backend: ScriptedBackend) -> None:
    """As where Airflow keeps the state of a task: 1 + 2 tries, as many as before."""
    train(1, max_tries=3, retries=3)
    end_job(backend, "Succeeded")

    assert train(2, max_tries=3, retries=2)["attempt"] == 2


def test_the_next_attempt_follows_a_job_that_goes_while_it_is_recalled(
    backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is being deleted: the list still has it. Its pods may run a little longer, and are waited for."""
    train(1)
    list_jobs = backend.list

    async def list_jobs_that_go(*asked: Any) -> Any:
        found = await list_jobs(*asked)
        if found:
            backend.jobs.clear()
            backend.pods_stay = 1
        return found

    monkeypatch.setattr(backend, "list", list_jobs_that_go)

    assert train(2)["attempt"] == 2
    assert backend.pods_stay < 0


@pytest.mark.parametrize(
    ("state", "hands_off", "kept"),
    [
        ("failed", False, False),
        ("success", False, False),
        ("deferred", False, True),
        (None, False, True),
        ("failed", True, True),
    ],
    ids=["marked as failed", "marked as success", "waits", "no answer", "a sensor's"],
)
async def test_cleanup_deletes_the_job_only_on_a_plain_answer(
    backend: ScriptedBackend, comms: FakeComms, state: str | None, *, hands_off: bool, kept: bool
) -> None:
    """`cleanup` also runs when a triggerer stops, and gets no reason."""
    job = job_object("digits", annotations=OWNED)
    backend.jobs["team", "digits"] = job
    comms.state = state

    await trigger_of(job, hands_off=hands_off).cleanup()

    assert bool(backend.jobs) is kept


@pytest.fixture
def airflow(comms: FakeComms, monkeypatch: pytest.MonkeyPatch) -> FakeComms:
    """Return an Airflow that cannot list its Variables, and has an id to make."""
    monkeypatch.delenv("AIRFLOW__PTJOB__INSTANCE")
    return comms


async def test_the_installations_id_is_found_by_tasks_and_triggers(airflow: FakeComms) -> None:
    """The same Variable as on a newer Airflow, so an upgrade keeps the id; a second Variable holds its key."""
    first = config.read()

    assert config.read() == first == await config.read_in_trigger()
    assert f"{KEY_PREFIX}{first}" in airflow.variables
    assert config.foreign_origin() == ""


def test_a_copy_that_has_deleted_the_id_gets_another_one(airflow: FakeComms) -> None:
    first = config.read()
    del airflow.variables[f"{KEY_PREFIX}{first}"]

    assert config.read() != first


def test_an_id_that_cannot_be_read_is_not_replaced(airflow: FakeComms) -> None:
    """Airflow's own reader returns its default then; the jobs of before would belong to nobody."""
    first = config.read()
    airflow.refuses = True

    with pytest.raises((ConnectionError, config.InstanceUnknown)):
        config.read()

    airflow.refuses = False
    assert config.read() == first


async def test_a_request_goes_on_after_its_caller_is_cancelled() -> None:
    """A cancelled read would leave its answer to the next reader."""
    may_go_on, has_ended = asyncio.Event(), asyncio.Event()

    async def question() -> None:
        await may_go_on.wait()
        has_ended.set()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await compat.answered(question())
    may_go_on.set()

    await has_ended.wait()


def test_all_events_of_an_asset_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    at = [datetime(2026, 11, 20, hour, tzinfo=UTC) for hour in range(4)]
    events = [SimpleNamespace(timestamp=each) for each in reversed(at)]
    accessors = MagicMock()
    accessors.__getitem__.return_value = events
    monkeypatch.setattr("airflow.sdk.execution_time.context.InletEventsAccessors", lambda _: accessors)

    found = compat.asset_events(Asset("incoming"), after=at[1], limit=1)

    assert [event.timestamp for event in found] == at[2:]
