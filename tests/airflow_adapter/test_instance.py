"""Tests of the installation id: each Airflow has its own, even if another one has the same configuration."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk.execution_time import comms
from airflow.sdk.execution_time.supervisor import set_supervisor_comms

from airflow_adapter.stand_ins import (
    FakeComms,
    StandInTaskInstance,
    context,
    end_job,
    event_of,
    operator,
    submitted,
    trigger_of,
)
from airflow_versions import since
from ptjob_provider.airflow import config, maintenance
from ptjob_provider.core.identity import Instance, owner_in
from ptjob_provider.core.installation_id import KEY_PREFIX
from ptjob_provider.core.run.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fakes import ScriptedBackend

pytestmark = since(3, 3, "a list of Variables")


class AirflowThatKeepsVariables(FakeComms):
    """A fake Airflow with its own database.

    Attributes:
        on_listing: functions to call between reading the keys and answering, one per request.
    """

    def __init__(self) -> None:
        super().__init__()
        self.on_listing: list[Callable[[], None]] = []

    def _answer(self, message: Any) -> Any:
        if isinstance(message, comms.GetVariableKeys) and not self.refuses:
            found = [key for key in sorted(self.variables) if key.startswith(message.prefix or "")]
            if self.on_listing:
                self.on_listing.pop(0)()
            return comms.VariableKeysResult(keys=found, total_entries=len(found))
        return super()._answer(message)


@pytest.fixture(autouse=True)
def _unnamed(_instance: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave `[ptjob] instance` at its default."""
    monkeypatch.delenv("AIRFLOW__PTJOB__INSTANCE")


@pytest.fixture
def airflow() -> Iterator[AirflowThatKeepsVariables]:
    """Return an installation without an id."""
    fake = AirflowThatKeepsVariables()
    with set_supervisor_comms(fake):
        yield fake


def test_an_installation_without_an_id_is_given_one_and_keeps_it(airflow: AirflowThatKeepsVariables) -> None:
    """The Variable's key contains the id, its value the origin."""
    first = config.read()

    assert config.read() == first
    assert list(airflow.variables) == [f"{KEY_PREFIX}{first}"]
    assert config.foreign_origin() == ""


def test_a_configured_name_is_the_installations_id(
    airflow: AirflowThatKeepsVariables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request is made and no id is created; ids of another installation in the database do not matter."""
    airflow.variables[f"{KEY_PREFIX}other"] = "elsewhere"
    monkeypatch.setenv("AIRFLOW__PTJOB__INSTANCE", "production")

    assert config.read() == Instance("production")
    assert config.foreign_origin() == ""
    assert airflow.questions == []


def test_two_workers_that_make_the_id_at_the_same_moment_lose_no_job(
    backend: ScriptedBackend, airflow: AirflowThatKeepsVariables
) -> None:
    """The first worker's job exists before the other id, which sorts first; its next try adopts the job."""
    given = context(StandInTaskInstance(max_tries=1))
    submitted(backend, given)
    airflow.variables[f"{KEY_PREFIX}0"] = "here"
    given["ti"].try_number = 2

    submitted(backend, given)
    submitted(backend, context(StandInTaskInstance(task_id="other")), task_id="other")

    assert backend.created == 2
    assert [owner_in(job).instance for job in backend.jobs.values()][1] == "0"


def test_a_worker_that_sees_another_ones_id_too_late_counts_it_as_its_own(airflow: AirflowThatKeepsVariables) -> None:
    """Both workers list the ids before either of them creates one."""
    airflow.on_listing = [lambda: airflow.variables.update({f"{KEY_PREFIX}0": "here"})]

    found = config.read()

    assert len(airflow.variables) == 2
    assert all(found.has(key.removeprefix(KEY_PREFIX)) for key in airflow.variables)


def test_two_installations_that_are_configured_alike_do_not_have_each_others_jobs(backend: ScriptedBackend) -> None:
    for _ in range(2):
        with set_supervisor_comms(AirflowThatKeepsVariables()):
            submitted(backend, context())

    assert (backend.created, backend.deleted) == (2, [])


@pytest.mark.parametrize(("is_renewed", "kept"), [(True, True), (False, False)])
def test_a_copys_trigger_deletes_no_job_of_the_original(
    backend: ScriptedBackend, airflow: AirflowThatKeepsVariables, *, is_renewed: bool, kept: bool
) -> None:
    """A user marks the copied task as failed."""
    submitted(backend, context())
    (job,) = backend.jobs.values()
    airflow.state = "failed"
    if is_renewed:
        airflow.variables = {f"{KEY_PREFIX}copy": "here"}

    asyncio.run(trigger_of(job).on_kill())

    assert bool(backend.jobs) is kept


def test_a_trigger_that_cannot_learn_whose_job_it_is_keeps_it(
    backend: ScriptedBackend, airflow: AirflowThatKeepsVariables
) -> None:
    """Airflow's API fails after it has returned the task's state."""
    submitted(backend, context())
    (job,) = backend.jobs.values()
    airflow.state = "failed"

    def gone() -> None:
        raise ConnectionError

    airflow.on_listing = [gone]

    asyncio.run(trigger_of(job).on_kill())

    assert backend.jobs


def test_a_copys_task_hands_on_the_originals_success_and_touches_nothing(
    backend: ScriptedBackend, airflow: AirflowThatKeepsVariables
) -> None:
    """The copied trigger has reported the success; the original's task still needs the job's object."""
    given = context()
    event = event_of(submitted(backend, given), Outcome.SUCCEEDED, result={"phase": "Succeeded"})
    end_job(backend)
    airflow.variables = {f"{KEY_PREFIX}copy": "here"}

    result = operator(on_finish_action="delete_job").execute_complete(given, event)

    assert result["phase"] == "Succeeded"
    assert (backend.deleted, backend.patches) == ([], [])


def test_the_maintenance_of_a_copied_database_looks_at_no_job(
    backend: ScriptedBackend, airflow: AirflowThatKeepsVariables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The original's jobs would look orphaned."""
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.com")
    submitted(backend, context())
    airflow.state = "failed"
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://staging.example.com")

    with pytest.raises(AirflowFailException, match=r"no jobs were checked: .*airflow variables delete ptjob_instance_"):
        maintenance.stop_orphans(namespaces=["default"])

    assert backend.jobs
