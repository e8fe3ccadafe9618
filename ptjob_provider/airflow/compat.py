"""Hide differences between the supported versions of Airflow, together with `compat_triggers`.

No other module depends on the version. Each part names the minimum of `apache-airflow` in pyproject.toml that makes it
unnecessary: then delete the part, and import from Airflow directly. For the differences that users notice, see
docs/reference/airflow-versions.md.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import Variable
from airflow.sdk.execution_time.comms import GetConnection, GetTaskStates, GetVariable, GetXCom, SetXCom

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping
    from datetime import datetime


__all__ = [
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowRuntimeError",
    "AirflowSkipException",
    "AirflowTaskTimeout",
    "ErrorType",
    "GetConnection",
    "GetTaskStates",
    "GetXCom",
    "SetXCom",
    "TaskDeferralError",
    "conf",
]

AIRFLOW = tuple(int(part) for part in version("apache-airflow-core").split(".")[:2])

T = TypeVar("T")

# Needed until the minimum is 3.2: names that have moved to the SDK.
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType  # noqa: E402 - belongs to the names below

if AIRFLOW >= (3, 2):
    from airflow.sdk import conf
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSkipException,
        AirflowTaskTimeout,
        TaskDeferralError,
    )
else:
    from airflow.configuration import conf  # type: ignore[assignment]
    from airflow.exceptions import (  # type: ignore[no-redef,attr-defined]
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSkipException,
        AirflowTaskTimeout,
        TaskDeferralError,
    )


def policies() -> Any:
    """Return the manager of the installation's policies and hooks; needed until the minimum is 3.2."""
    settings = import_module("airflow.settings")  # imported here: a task has loaded it anyway, a DAG file need not
    get_manager = getattr(settings, "get_policy_plugin_manager", None)
    return get_manager() if get_manager else settings.POLICY_PLUGIN_MANAGER


PATIENT_QUESTIONS = AIRFLOW < (3, 2)
"""True if a request to Airflow's supervisor must not be cancelled; needed until the minimum is 3.2.

The next request would get the response to the cancelled one, which ends a triggerer, and gives a task in a worker a
wrong value.
"""


async def answered(request: Awaitable[T]) -> T:
    """Await the supervisor's response; on Airflow 3.1, the request is not cancelled with the caller."""
    if not PATIENT_QUESTIONS:
        return await request
    pending = asyncio.ensure_future(request)
    _pending.add(pending)
    pending.add_done_callback(_forget)
    return await asyncio.shield(pending)


_pending: set[asyncio.Future[Any]] = set()


def _forget(request: asyncio.Future[Any]) -> None:
    _pending.discard(request)
    if not request.cancelled():
        request.exception()  # keeps asyncio from logging it if the caller was cancelled


# Needed until the minimum is 3.3, to the end of the module: state stores, `on_kill` of triggers, lists of Variables.
_IS_3_3 = AIRFLOW >= (3, 3)

if _IS_3_3:
    from airflow.sdk.execution_time.comms import GetVariableKeys
    from airflow.sdk.execution_time.context import NEVER_EXPIRE


HAS_ON_KILL = _IS_3_3
"""True if Airflow calls `on_kill` of a trigger; else `cleanup` must determine why it was called."""

HAS_STATE_STORE = _IS_3_3
"""True if a task has a store that outlives its tries."""


class _TaskXComs:
    """Substitute for a task's state store: XComs, which survive a deferral but are deleted when another try starts."""

    def __init__(self, ti: Any) -> None:
        self._ti = ti

    def get(self, key: str) -> Any:
        return self._ti.xcom_pull(key=key, map_indexes=self._ti.map_index)

    def set(self, key: str, value: Any) -> None:
        self._ti.xcom_push(key=key, value=value)


class _TaskState:
    """A task's state store, with values that are kept as long as the task instance."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def get(self, key: str) -> Any:
        return self._store.get(key)

    def set(self, key: str, value: Any) -> None:
        self._store.set(key, value, retention=NEVER_EXPIRE)


def task_state(context: Mapping[str, Any]) -> _TaskState | _TaskXComs:
    """Return the state store of a task instance, or its substitute."""
    return _TaskState(context["task_state_store"]) if HAS_STATE_STORE else _TaskXComs(context["ti"])


def asset_state(trigger: Any) -> Any:
    """Return the state store of a trigger's assets; None if this version of Airflow has none."""
    return getattr(trigger, "asset_state_store", None)


def variable(key: str) -> str | None:
    """Return a Variable of Airflow's database in a task; None if there is none.

    `Variable.get` (3.1 to 3.4) returns its default also if the API refuses or does not answer.

    Raises:
        AirflowRuntimeError: Airflow's API did not respond.
    """
    answer = comms().send(GetVariable(key=key))
    if getattr(answer, "error", ErrorType.VARIABLE_NOT_FOUND) is not ErrorType.VARIABLE_NOT_FOUND:
        raise AirflowRuntimeError(answer)
    return getattr(answer, "value", None)


def variable_keys(prefix: str) -> list[str]:
    """Return the keys of the Variables with this prefix; before Airflow 3.3, only the key that was set last."""
    if _IS_3_3:
        return list(Variable.keys(prefix=prefix))
    key = variable(_index(prefix))
    return [key] if key and variable(key) is not None else []


async def variable_keys_from_trigger(comms: Any, prefix: str) -> list[str]:
    """Return the same keys as `variable_keys`, in a triggerer."""
    if _IS_3_3:
        return list((await comms.asend(GetVariableKeys(prefix=prefix))).keys)
    key = getattr(await comms.asend(GetVariable(key=_index(prefix))), "value", None)
    value = getattr(await comms.asend(GetVariable(key=key)), "value", None) if key else None
    return [key] if key and value is not None else []


def add_variable(prefix: str, key: str, value: str, description: str) -> None:
    """Set a Variable whose key `variable_keys` returns."""
    Variable.set(key, value, description=description)
    if not _IS_3_3:
        Variable.set(_index(prefix), key, description=description)


def _index(prefix: str) -> str:
    """Return the key of the Variable that has the key of another one, for an Airflow that cannot list Variables."""
    return prefix.rstrip("_")


def asset_events(asset: Any, *, after: datetime | None, limit: int) -> list[Any]:
    """Return an asset's next events, oldest first; Airflow 3.1 ignores `limit`, because its API has no pages."""
    events = import_module("airflow.sdk.execution_time.context").InletEventsAccessors([asset])[asset]
    if hasattr(events, "limit"):
        events = events.limit(limit)
        return list(events.after(after.isoformat()) if after else events)
    later = [event for event in events if after is None or event.timestamp > after]
    return sorted(later, key=lambda event: event.timestamp)


def task_instances() -> Any:
    """Return the class whose `get_task_states` and `get_dr_count` query Airflow's API; the same in all versions."""
    return import_module("airflow.sdk.execution_time.task_runner").RuntimeTaskInstance


def comms() -> Any:
    """Return the connection to the supervisor, which each process sets anew; None outside of tasks and triggers."""
    return getattr(import_module("airflow.sdk.execution_time.task_runner"), "SUPERVISOR_COMMS", None)


def file_systems() -> Any:
    """Return the module that has the file system schemes registered by providers."""
    return import_module("airflow.sdk.io.fs")
