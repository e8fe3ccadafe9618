"""Import what differs between the supported versions of Airflow; only `compat_triggers` knows versions, too.

Each part says which floor of `apache-airflow` in pyproject.toml makes it needless. Then the part is deleted, and its
users import from Airflow directly. What users notice: docs/reference/airflow-versions.md.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import Variable
from airflow.sdk.execution_time.comms import GetTaskStates, GetVariable, GetXCom, SetXCom

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
    "GetTaskStates",
    "GetXCom",
    "SetXCom",
    "TaskDeferralError",
    "conf",
]

AIRFLOW = tuple(int(part) for part in version("apache-airflow-core").split(".")[:2])

T = TypeVar("T")

# Until the floor is 3.2: names that have moved to the SDK.
from airflow.sdk.exceptions import AirflowRuntimeError  # noqa: E402 - part of the names below

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
    """Return the manager of the installation's policies and hooks; until the floor is 3.2."""
    settings = import_module("airflow.settings")  # a task has loaded it, a DAG file has not
    found = getattr(settings, "get_policy_plugin_manager", None)
    return found() if found else settings.POLICY_PLUGIN_MANAGER


PATIENT_QUESTIONS = AIRFLOW < (3, 2)
"""True if a question to Airflow's supervisor must not be given up; until the floor is 3.2.

The next reader of the socket would get its answer: a triggerer ends by that, a worker's task gets a wrong value.
"""


async def answered(question: Awaitable[T]) -> T:
    """Await the answer of the supervisor; a caller that stops waiting leaves the question alone on Airflow 3.1."""
    if not PATIENT_QUESTIONS:
        return await question
    asked = asyncio.ensure_future(question)
    _asked.add(asked)
    asked.add_done_callback(_forget)
    return await asyncio.shield(asked)


_asked: set[asyncio.Future[Any]] = set()


def _forget(asked: asyncio.Future[Any]) -> None:
    _asked.discard(asked)
    if not asked.cancelled():
        asked.exception()  # nobody may wait for it any more


# Until the floor is 3.3, to the end of the module: state stores, `on_kill` of triggers, shared streams, names of them.
_IS_3_3 = AIRFLOW >= (3, 3)

if _IS_3_3:
    from airflow.sdk.execution_time.comms import GetVariableKeys
    from airflow.sdk.execution_time.context import NEVER_EXPIRE


HAS_ON_KILL = _IS_3_3
"""True if Airflow calls `on_kill` of a trigger; else `cleanup` must find out why it was called."""

HAS_STATE_STORE = _IS_3_3
"""True if a task has a store that outlives its tries."""


class _TaskXComs:
    """Stands for a task's state store: XComs, which survive a deferral, and go when another try starts."""

    def __init__(self, ti: Any) -> None:
        self._ti = ti

    def get(self, key: str) -> Any:
        return self._ti.xcom_pull(key=key, map_indexes=self._ti.map_index)

    def set(self, key: str, value: Any) -> None:
        self._ti.xcom_push(key=key, value=value)


class _TaskState:
    """A task's state store whose values stay as long as the task instance."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def get(self, key: str) -> Any:
        return self._store.get(key)

    def set(self, key: str, value: Any) -> None:
        self._store.set(key, value, retention=NEVER_EXPIRE)


def task_state(context: Mapping[str, Any]) -> _TaskState | _TaskXComs:
    """Return the store of a task instance's values."""
    return _TaskState(context["task_state_store"]) if HAS_STATE_STORE else _TaskXComs(context["ti"])


def asset_state(trigger: Any) -> Any:
    """Return the store of the values of a trigger's assets; None if this Airflow has none."""
    return getattr(trigger, "asset_state_store", None)


_INDEX = "{}keys"
"""Key of the Variable that names the others of its prefix, for an Airflow that cannot list them."""


def variable_keys(prefix: str) -> list[str]:
    """Return the keys of the Variables with this prefix; without `Variable.keys` the one that was set last."""
    if _IS_3_3:
        return list(Variable.keys(prefix=prefix))
    key = Variable.get(_index(prefix), default=None)
    return [key] if key and Variable.get(key, default=None) is not None else []


async def variable_keys_from_trigger(comms: Any, prefix: str) -> list[str]:
    """Return the same in a triggerer."""
    if _IS_3_3:
        return list((await comms.asend(GetVariableKeys(prefix=prefix))).keys)
    key = getattr(await comms.asend(GetVariable(key=_index(prefix))), "value", None)
    found = getattr(await comms.asend(GetVariable(key=key)), "value", None) if key else None
    return [key] if key and found is not None else []


def add_variable(prefix: str, key: str, value: str, description: str) -> None:
    """Set a Variable that `variable_keys` finds."""
    Variable.set(key, value, description=description)
    if not _IS_3_3:
        Variable.set(_index(prefix), key, description=description)


def _index(prefix: str) -> str:
    return prefix.rstrip("_")


def asset_events(asset: Any, *, after: datetime | None, limit: int) -> list[Any]:
    """Return an asset's next events, oldest first; Airflow 3.1 has no pages, and returns all of them at once."""
    events = import_module("airflow.sdk.execution_time.context").InletEventsAccessors([asset])[asset]
    if hasattr(events, "limit"):
        events = events.limit(limit)
        return list(events.after(after.isoformat()) if after else events)
    later = [event for event in events if after is None or event.timestamp > after]
    return sorted(later, key=lambda event: event.timestamp)


def task_instances() -> Any:
    """Return the class whose `get_task_states` and `get_dr_count` ask the API; all versions."""
    return import_module("airflow.sdk.execution_time.task_runner").RuntimeTaskInstance


def comms() -> Any:
    """Return the way to the supervisor, set anew for every process; None outside of tasks and triggers."""
    return getattr(import_module("airflow.sdk.execution_time.task_runner"), "SUPERVISOR_COMMS", None)


def file_systems() -> Any:
    """Return the module of the schemes that providers have registered."""
    return import_module("airflow.sdk.io.fs")
