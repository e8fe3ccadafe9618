"""Requests to Airflow about the running task: its state, its XComs, and values that outlive its tries."""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import logging
import os
import stat
import termios
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ptjob_provider.airflow import compat
from ptjob_provider.airflow.compat import ErrorType, GetConnection, GetTaskStates, GetXCom, SetXCom
from ptjob_provider.core import kinds
from ptjob_provider.core.run.attempts import AttemptRecord, is_delivered
from ptjob_provider.core.run.recall import recall

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.identity import Owner
    from ptjob_provider.core.run.api_errors import ApiErrors

logger = logging.getLogger(__name__)

WORKER_PATIENCE = None if compat.PATIENT_QUESTIONS else 3.0
"""Seconds that a worker waits for a response; None: without limit, see `compat.PATIENT_QUESTIONS`.

When a user kills a task, SIGKILL follows after five seconds; the job must be deleted before. Without a response the job
is kept.
"""

TRIGGER_PATIENCE = 5.0
"""Seconds that a trigger waits for a response."""

KILL_PATIENCE = 10.0
"""Seconds for each of the two questions before a job is deleted: without a response it runs on. Airflow gives `on_kill`
30 s in all."""

FIRST_PATIENCE = 60.0
"""Seconds for the first request of a new triggerer: its API took 20 s to start on a busy machine."""


async def state_from_worker(ti: Any) -> str | None:
    """Return the task instance's current state in Airflow; None if there was no response in time.

    A task instance without a state is "none", one that no longer exists "gone".

    The request runs in a thread, where a timeout does not cancel it: cancelling a request over the supervisor's socket
    would give the next request the wrong response (observed on 3.3.2).
    """
    try:
        async with asyncio.timeout(WORKER_PATIENCE):
            return _state(await _from_thread(lambda: compat.comms().send(_state_request(ti))), ti)
    except TimeoutError:
        return None


async def _from_thread(send: Callable[[], Any]) -> Any:
    """Return the response to a worker's request, or the error that it ended with."""
    loop = asyncio.get_running_loop()
    response: asyncio.Future[Any] = loop.create_future()

    def run() -> None:
        try:
            with _supervisor_lock:
                result = send()
        except Exception as error:  # noqa: BLE001 - any failure counts as no response
            result = error
        with contextlib.suppress(RuntimeError):  # the loop may be closed by then
            loop.call_soon_threadsafe(_set_result, response, result)

    threading.Thread(target=run, name="ptjob-ask-airflow", daemon=True).start()
    return await response


async def state_from_trigger(ti: Any, *, patience: float | None = None) -> str | None:
    """Return the task instance's current state in Airflow; None if there was no response in time."""
    try:
        async with asyncio.timeout(patience or TRIGGER_PATIENCE):
            return _state(await _send(_state_request(ti)), ti)
    except Exception:  # noqa: BLE001 - any failure counts as no response
        return None


async def variables_from_trigger(prefix: str) -> list[str] | None:
    """Return the keys of Airflow's Variables with this prefix; None if there was no response in time."""
    try:
        async with asyncio.timeout(KILL_PATIENCE):
            return await compat.answered(compat.variable_keys_from_trigger(compat.comms(), prefix))
    except Exception:  # noqa: BLE001 - any failure counts as no response
        return None


def lacks_connection(conn_id: str) -> bool:
    """Return whether Airflow has no such connection; True also in a process without a supervisor.

    Airflow's own reader (3.1 to 3.4) says so, too, if its API refuses or does not answer.

    Raises:
        AirflowRuntimeError: Airflow's API did not respond.
    """
    comms = compat.comms()
    answer = comms.send(GetConnection(conn_id=conn_id)) if comms else None
    return answer is None or getattr(answer, "error", None) is ErrorType.CONNECTION_NOT_FOUND


def is_in_triggerer() -> bool:
    """Return whether this process is a triggerer; `dag.test()` runs a trigger inline, and never resumes it."""
    return hasattr(compat.comms(), "asend")


async def set_xcom(ti: Any, key: str, value: dict[str, Any]) -> None:
    """Write an XCom of the task from its trigger, and return once it is stored.

    Raises:
        TimeoutError: Airflow did not respond in time; the XCom may be stored all the same.
    """
    if not is_in_triggerer():
        return
    message = SetXCom(
        key=key, value=value, dag_id=ti.dag_id, task_id=ti.task_id, run_id=ti.run_id, map_index=ti.map_index
    )
    async with asyncio.timeout(TRIGGER_PATIENCE):
        await _send(message)


async def push_xcom(ti: Any, key: str, value: dict[str, Any]) -> None:
    """Write an XCom of the task beside a worker's wait, unless an earlier request has no response yet.

    Raises:
        TimeoutError: Airflow did not respond in time; the XCom may be stored all the same.
    """
    if not _supervisor_lock.locked():
        async with asyncio.timeout(TRIGGER_PATIENCE):
            await _from_thread(lambda: ti.xcom_push(key=key, value=value))


def settle() -> None:
    """Wait a moment for the response to `push_xcom`: the next request might get it (Airflow 3.1)."""
    if _supervisor_lock.acquire(timeout=TRIGGER_PATIENCE):
        _supervisor_lock.release()


async def get_xcom(ti: Any, key: str) -> dict[str, Any] | None:
    """Return what `set_xcom` wrote in an earlier run of the trigger; None if there is nothing.

    Raises:
        TimeoutError: Airflow did not respond in time.
    """
    if not is_in_triggerer():
        return None
    message = GetXCom(key=key, dag_id=ti.dag_id, task_id=ti.task_id, run_id=ti.run_id, map_index=ti.map_index)
    async with asyncio.timeout(FIRST_PATIENCE):
        response = await _send(message)
    value = getattr(response, "value", None)
    return value if isinstance(value, dict) else None


def unread_bytes() -> int:
    """Return the bytes of log records and requests that the supervisor has not read yet, as the kernel counts them.

    A triggerer and a task write records to the stream of the root logger's handler, and requests to descriptor 0
    (Airflow 3.1 to 3.4). A process without a supervisor, as of `dag.test()`, has no sockets there: 0.
    """
    streams = (getattr(handler, "stream", None) for handler in logging.getLogger().handlers)
    return _unread(0) + sum(_unread(stream) for stream in streams)


def _unread(stream: Any) -> int:
    unread = array.array("i", [0])
    with contextlib.suppress(AttributeError, OSError, ValueError):  # no stream, none of a descriptor, a closed one
        descriptor = stream if stream == 0 else stream.fileno()
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            fcntl.ioctl(descriptor, termios.TIOCOUTQ, unread)
    return unread[0]


async def _send(message: Any) -> Any:
    """Send a request from a trigger, and return the supervisor's response."""
    return await compat.answered(compat.comms().asend(message))


_supervisor_lock = threading.Lock()
"""Held by a worker's thread from request to response, because Airflow 3.1 has no lock for that."""


def _set_result(response: asyncio.Future[Any], result: Any) -> None:
    if not response.done():
        response.set_result(result)


def _state_request(ti: Any) -> GetTaskStates:
    mapped = ti.map_index if ti.map_index is not None and ti.map_index >= 0 else None
    return GetTaskStates(dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id], map_index=mapped)


def _state(response: Any, ti: Any) -> str | None:
    states = getattr(response, "task_states", None)
    if states is None:
        return None
    of_run = states.get(ti.run_id) or {}
    mapped = f"{ti.task_id}_{ti.map_index}"
    state = of_run.get(mapped, of_run.get(ti.task_id, "gone"))
    return str(getattr(state, "value", state)) if state else "none"


_KEY = "ptjob_attempt"
_RESULT_KEY = "ptjob_result"
_EARLIER_CLEAR = -1


class TaskStateAttemptStore:
    """`AttemptStore` of one task instance, shared by all its tries, also after a clear."""

    def __init__(self, context: Mapping[str, Any]) -> None:
        self._store = compat.task_state(context)
        self._max_tries = context["ti"].max_tries
        self._try_number = context["ti"].try_number
        self._tries_before_clear = tries_before_clear(context)

    def load(self) -> AttemptRecord | None:
        """Return the record that the last try saved; None if there is none."""
        fields = self._store.get(_KEY)
        return AttemptRecord.from_dict(fields) if fields else None

    def save(self, record: AttemptRecord) -> None:
        """Store the record for as long as the task instance exists."""
        self._store.set(_KEY, record.to_dict())

    def load_result(self) -> dict[str, Any] | None:
        """Return the result that an earlier try saved; None if there is none, or the task has been cleared since."""
        stored, record = self._store.get(_RESULT_KEY) or {}, self.load()
        is_history = is_delivered(record, tries_before_clear=self._tries_before_clear)
        return None if is_history or stored.get("of") != self._attempt_key(record) else stored["result"]

    def save_result(self, result: Mapping[str, Any]) -> None:
        """Store the result of a job that is about to be deleted, so that a later try does not train again for it."""
        stored = {"of": self._attempt_key(self.load()), "result": dict(result)}
        self._store.set(_RESULT_KEY, stored)

    async def recall(
        self, backend: Backend, namespace: str, owner: Owner, errors: ApiErrors, *, own_kinds: Sequence[str]
    ) -> None:
        """Restore a missing record of earlier tries from the jobs that they created.

        Airflow before 3.3 has no store that outlives a try, and 3.4 discards the store's content when a person clears
        the task. A job created with another `max_tries` is replaced, as it is with a record from before the clear. The
        DAG's `retries` prove no clear, because they may have been lowered since: by that count, a finished job is
        replaced, and a running one is adopted.
        """
        if self._try_number > 1 and self.load() is None:
            await errors.answer(lambda: self._recall(backend, namespace, owner, own_kinds), though_away=False)

    async def _recall(self, backend: Backend, namespace: str, owner: Owner, own_kinds: Sequence[str]) -> None:
        before = self._tries_before_clear
        is_repeated = self._try_number > before + 1
        attempts = await recall(backend, namespace, owner, is_repeated=is_repeated, own_kinds=own_kinds)
        record, job = attempts.load(), attempts.job
        if record is None or job is None:
            return
        labels, phase = job["metadata"]["labels"], kinds.read_status(job).phase
        made_by = int(labels.get("try_number", 1))
        is_cleared = labels.get("max_tries") not in {None, str(self._max_tries)}
        if made_by <= before and not (is_cleared or phase.is_terminal):
            logger.warning(
                "%s still runs and is adopted: either its task was cleared, or the task's retries were lowered, and "
                "Airflow does not tell which. To train anew, delete the job and clear the task",
                record.ref,
            )
        clear_number = _EARLIER_CLEAR if is_cleared else self._max_tries
        self.save(replace(record, clear_number=clear_number, delivered_by=made_by))

    def _attempt_key(self, record: AttemptRecord | None) -> dict[str, Any]:
        """Return fields that identify the attempt of a result, and differ after a clear."""
        return {"clear_number": self._max_tries, "attempt": record.attempt if record else None}


def tries_before_clear(context: Mapping[str, Any]) -> int:
    """Return the number of tries before the task's last clear; 0 if it was never cleared.

    Only a clear changes `max_tries`: it sets `try_number + retries`, with the DAG's `retries` at that time.
    """
    return int(context["ti"].max_tries - (context["task"].retries or 0))
