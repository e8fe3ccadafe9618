"""Tests of a task that is cleared after its success: it trains again, also with an unchanged `max_tries`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse

from airflow_adapter.stand_ins import StandInTaskInstance, context, end_job, operator
from airflow_versions import since

if TYPE_CHECKING:
    from fakes import ScriptedBackend

pytestmark = pytest.mark.usefixtures("comms")


def delivered(backend: ScriptedBackend, **arguments: Any) -> dict[str, Any]:
    """Let the first of three tries succeed and return the context of the next try."""
    given = context(StandInTaskInstance(max_tries=2))
    operator(wait_for_completion=False, **arguments).execute(given)
    end_job(backend)
    operator(**arguments).execute(given)
    given["ti"].try_number = 2
    return given


def cleared_with_fewer_retries(given: dict[str, Any]) -> None:
    """Clear the task as Airflow does, `max_tries = try_number + retries`: 1 + 1, the same value as before."""
    given["task"].retries = 1


def test_the_try_after_a_success_that_airflow_has_not_heard_of_hands_it_on(backend: ScriptedBackend) -> None:
    """The worker died before it could report the success."""
    given = delivered(backend)

    assert operator().execute(given)["attempt"] == 1
    assert backend.created == 1


@pytest.mark.parametrize("action", ["keep_job", "delete_job"])
def test_a_retry_after_such_a_clear_goes_on_with_the_new_training(backend: ScriptedBackend, action: str) -> None:
    """Somebody has lowered `retries`; neither the finished job nor its stored result is reused, then or later."""
    given = delivered(backend, on_finish_action=action)
    cleared_with_fewer_retries(given)
    operator(wait_for_completion=False, on_finish_action=action).execute(given)
    given["ti"].try_number = 3
    end_job(backend)

    assert operator(on_finish_action=action).execute(given)["attempt"] == 2
    assert backend.created == 2


@since(3, 3, "a state store of the task")
def test_a_clear_never_stops_a_job_that_is_only_suspected_to_be_history(backend: ScriptedBackend) -> None:
    """A job that its task only submitted keeps running; with the same `max_tries` it is adopted."""
    given = context(StandInTaskInstance(max_tries=2))
    operator(wait_for_completion=False).execute(given)
    given["ti"].try_number = 2
    cleared_with_fewer_retries(given)

    operator(wait_for_completion=False).execute(given)

    assert (backend.created, backend.deleted) == (1, [])


@since(3, 3, "a state store of the task")
def test_a_success_that_cannot_be_noted_is_a_success(backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job has succeeded and its result is returned; the note matters only for a clear with fewer retries."""
    given = context()
    operator(wait_for_completion=False).execute(given)
    end_job(backend)
    store, keep = given["task_state_store"], given["task_state_store"].set

    def refuses(key: str, value: Any, **how: Any) -> None:
        if value.get("delivered_by"):
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR))
        keep(key, value, **how)

    monkeypatch.setattr(store, "set", refuses)

    assert operator().execute(given)["phase"] == "Succeeded"
