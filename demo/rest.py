"""Client of the part of Airflow's REST API v2 that is needed to follow a run; returns Airflow's values unchanged."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx

from demo.processes import StackFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_PAGE = 100
_MAX_TEXT = 500
FINAL_RUN_STATES = frozenset({"success", "failed"})
FINAL_TASK_STATES = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})


@dataclass(frozen=True, kw_only=True)
class Health:
    """State that a component reports; `heartbeat` is in epoch seconds, 0 before the first one."""

    status: str
    heartbeat: float


class AirflowApi:
    """Client of an API server that treats every user as an administrator (`simple_auth_manager_all_admins`)."""

    def __init__(self, url: str) -> None:
        self.url = url
        # No connection is reused: the server might close it at that very moment.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._client = httpx.Client(base_url=url, timeout=120, trust_env=False, limits=limits)
        self._token = ""

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def health(self) -> dict[str, Health] | None:
        """Return each component's state; None while the API server does not respond."""
        try:
            response = self._client.get("/api/v2/monitor/health", timeout=5)
        except httpx.TransportError:
            return None
        if response.status_code != httpx.codes.OK:
            return None
        return {name: _health(name, fields) for name, fields in response.json().items()}

    def get(self, path: str, **query: Any) -> Any:
        """Return the JSON of `/api/v2/<path>`.

        Raises:
            httpx.HTTPStatusError: Airflow responded with an error, such as 404; the message contains the response.
        """
        return self._json("GET", path, params=query)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """POST JSON to `/api/v2/<path>` and return the response's JSON."""
        return self._json("POST", path, json=body)

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """PATCH JSON to `/api/v2/<path>` and return the response's JSON."""
        return self._json("PATCH", path, json=body)

    def wait_for_dag(self, dag_id: str, *, timeout: float = 300) -> None:
        """Return once the DAG processor has written the DAG to the database.

        Raises:
            StackFailed: the DAG did not appear in time.
            TimeoutError: the same, and Airflow has import errors; the message has them.
        """
        deadline = time.monotonic() + timeout
        while not self.has_dag(dag_id):
            errors = [error["stack_trace"] for error in self.get("importErrors")["import_errors"]]
            if time.monotonic() > deadline:
                failure = TimeoutError if errors else StackFailed
                raise failure(f"DAG {dag_id} is not there after {timeout:.0f} s\n" + "\n".join(errors))
            time.sleep(0.5)

    def has_dag(self, dag_id: str) -> bool:
        """Return whether Airflow knows the DAG."""
        return self._request("GET", f"dags/{dag_id}").status_code == httpx.codes.OK

    def unpause(self, dag_id: str) -> None:
        """Unpause the DAG, so that its schedule creates runs."""
        self.patch(f"dags/{dag_id}", {"is_paused": False})

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None) -> str:
        """Create a manual run and return its run_id."""
        run = self.post(f"dags/{dag_id}/dagRuns", {"logical_date": None, "conf": dict(conf or {})})
        return str(run["dag_run_id"])

    def asset_events(self) -> list[dict[str, Any]] | None:
        """Return the events of all assets, oldest first; None while a run that one of them has created is queued.

        Airflow 3.3.2 then responds with 500, because its response cannot contain a run that has not begun.
        """
        events: list[dict[str, Any]] = []
        while True:
            query = {"limit": _PAGE, "offset": len(events), "order_by": "timestamp"}
            response = self._request("GET", "assets/events", params=query)
            if response.status_code == httpx.codes.INTERNAL_SERVER_ERROR:
                return None
            page = response.raise_for_status().json()
            events += page["asset_events"]
            if not page["asset_events"] or len(events) >= page["total_entries"]:
                return events

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """Return the DAG's runs, newest first."""
        runs: list[dict[str, Any]] = self.get(f"dags/{dag_id}/dagRuns", order_by="-run_after")["dag_runs"]
        return runs

    def run(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """Return one run."""
        run: dict[str, Any] = self.get(f"dags/{dag_id}/dagRuns/{quote(run_id, safe='')}")
        return run

    def delete_run(self, dag_id: str, run_id: str) -> None:
        """Delete one run with its task instances, as the page's button does."""
        self._request("DELETE", f"dags/{dag_id}/dagRuns/{quote(run_id, safe='')}").raise_for_status()

    def tasks(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Return the run's task instances; a mapped task has several."""
        path = f"dags/{dag_id}/dagRuns/{quote(run_id, safe='')}/taskInstances"
        tasks: list[dict[str, Any]] = self.get(path)["task_instances"]
        return tasks

    def task(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> dict[str, Any]:
        """Return one task instance."""
        task: dict[str, Any] = self.get(_task_path(dag_id, run_id, task_id, map_index))
        return task

    def set_task_state(self, dag_id: str, run_id: str, task_id: str, state: str, map_index: int = -1) -> None:
        """Mark a task instance `success` or `failed`, as the page's button does."""
        self.patch(_task_path(dag_id, run_id, task_id, map_index), {"new_state": state})

    def clear(self, dag_id: str, run_id: str, *task_ids: str) -> None:
        """Clear these tasks of the run in any state, as the page's button does."""
        body = {"dry_run": False, "dag_run_id": run_id, "task_ids": list(task_ids), "only_failed": False}
        self.post(f"dags/{dag_id}/clearTaskInstances", body)

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value", map_index: int = -1) -> Any:
        """Return the value of an XCom; None if it does not exist."""
        path = f"{_task_path(dag_id, run_id, task_id)}/xcomEntries/{key}"
        response = self._request("GET", path, params={"map_index": map_index, "deserialize": False})
        if response.status_code == httpx.codes.NOT_FOUND:
            return None
        return decoded(response.raise_for_status().json()["value"])

    def wait_for_run(self, dag_id: str, run_id: str, *, timeout: float = 300) -> str:
        """Return the state in which the run ended.

        Raises:
            TimeoutError: the run has not ended in time; the message has its last state.
        """
        return self.wait(lambda: self.run(dag_id, run_id)["state"], FINAL_RUN_STATES, timeout=timeout)

    def wait_for_task(
        self, dag_id: str, run_id: str, task_id: str, *states: str, timeout: float = 300, map_index: int = -1
    ) -> str:
        """Return the task's state once it is one of these, by default one of the final states."""
        wanted = frozenset(states) or FINAL_TASK_STATES
        return self.wait(lambda: self.task(dag_id, run_id, task_id, map_index)["state"], wanted, timeout=timeout)

    def wait(self, ask: Callable[[], str | None], wanted: frozenset[str], *, timeout: float) -> str:
        """Call `ask` until it returns one of the wanted values, and return that value.

        Raises:
            TimeoutError: `ask` did not return one in time; the message has the last value.
        """
        deadline = time.monotonic() + timeout
        while (state := ask()) not in wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(f"after {timeout:.0f} s it is {state!r}, not one of {sorted(wanted)}")
            time.sleep(0.2)
        return str(state)

    def log(
        self, dag_id: str, run_id: str, task_id: str, attempt: int = 1, map_index: int = -1
    ) -> list[dict[str, Any]]:
        """Return all current records of the task's log: `event`, and `timestamp` and `level` if present."""
        path = f"{_task_path(dag_id, run_id, task_id)}/logs/{attempt}"
        query = {"map_index": map_index, "full_content": True}
        response = self._request("GET", path, params=query, headers={"accept": "application/x-ndjson"})
        if response.status_code == httpx.codes.NOT_FOUND:
            return []
        return [json.loads(line) for line in response.raise_for_status().text.splitlines() if line]

    def follow_log(
        self, dag_id: str, run_id: str, task_id: str, *, attempt: int = 1, map_index: int = -1, interval: float = 0.5
    ) -> Iterator[dict[str, Any]]:
        """Yield the records of the task's log as they are written, until the attempt has ended and all are read.

        Airflow merges several files by time, so positions shift; a record is new if it occurs more often than before.
        """
        before: dict[str, int] = {}
        while True:
            ended = self._has_ended(dag_id, run_id, task_id, attempt, map_index)
            now: dict[str, int] = {}
            for record in self.log(dag_id, run_id, task_id, attempt, map_index):
                key = json.dumps(record, sort_keys=True)
                now[key] = now.get(key, 0) + 1
                if now[key] > before.get(key, 0):
                    yield record
            before = now
            if ended:
                return
            time.sleep(interval)

    def _has_ended(self, dag_id: str, run_id: str, task_id: str, attempt: int, map_index: int) -> bool:
        task = self.task(dag_id, run_id, task_id, map_index)
        return task["try_number"] > attempt or task["state"] in FINAL_TASK_STATES | {"up_for_retry"}

    def _json(self, method: str, path: str, **rest: Any) -> Any:
        response = self._request(method, path, **rest)
        if response.is_error:
            why = f"{method} {response.url}: {response.status_code} {response.text[:_MAX_TEXT]}"
            raise httpx.HTTPStatusError(why, request=response.request, response=response)
        return response.json()

    def _request(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **rest: Any
    ) -> httpx.Response:
        for _ in range(2):
            sent = {**(headers or {}), "authorization": f"Bearer {self._access_token()}"}
            response = self._client.request(method, f"/api/v2/{path}", headers=sent, **rest)
            if response.status_code != httpx.codes.UNAUTHORIZED:
                break
            self._token = ""
        return response

    def _access_token(self) -> str:
        if not self._token:
            response = self._client.get("/auth/token")
            self._token = response.raise_for_status().json()["access_token"]
        return self._token


def decoded(value: Any) -> Any:
    """Return the value of an XCom, which Airflow 3 returns as JSON or as a string that contains JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value


def _task_path(dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> str:
    path = f"dags/{dag_id}/dagRuns/{quote(run_id, safe='')}/taskInstances/{task_id}"
    return path if map_index < 0 else f"{path}/{map_index}"


def _health(name: str, fields: Mapping[str, Any]) -> Health:
    beat = fields.get(f"latest_{name}_heartbeat")
    heartbeat = datetime.fromisoformat(beat).timestamp() if beat else 0.0
    return Health(status=fields.get("status") or "", heartbeat=heartbeat)
