"""A real `airflow api-server` below a path, with trainings in its database as tasks leave them there."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import httpx
import sqlalchemy as sa

from demo.rest import AirflowApi
from demo.stack import Stack, StackConfig
from ptjob_provider.airflow.compat import AIRFLOW
from ptjob_provider.airflow.training_page import address
from training_xcoms import at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HERE = Path(__file__).parent
BELOW = "/team/airflow"
"""Path of this Airflow at its server, as behind a proxy."""

USERS = {"admin": "secret of admin", "guest": "secret of guest"}


class UsersApi(AirflowApi):
    """The REST API for a user with a password."""

    def __init__(self, url: str, user: str) -> None:
        super().__init__(url)
        self.user = user

    def _access_token(self) -> str:
        if not self._token:
            words = {"username": self.user, "password": USERS[self.user]}
            self._token = httpx.post(f"{self.url}/auth/token", json=words, timeout=60).json()["access_token"]
        return self._token

    def delete_xcom(self, task_path: str, key: str, map_index: int) -> None:
        """Delete an XCom."""
        path = f"{task_path}/xcomEntries/{key}"
        self._request("DELETE", path, params={"map_index": map_index}).raise_for_status()


@dataclass(frozen=True)
class TrainingServer:
    """The API server; no scheduler is there, so every task stays as it is put."""

    stack: Stack
    url: str
    api: UsersApi

    def cookies(self, user: str = "admin") -> dict[str, str]:
        """Return the cookie that Airflow's login sets."""
        return {"_token": UsersApi(self.url, user)._access_token()}

    def page(self, dag_id: str, run_id: str, task_id: str = "train", map_index: int = -1) -> str:
        """Return the page's address as Airflow's own page has it, from the operator's link."""
        links = self.api.get(f"{_task_path(dag_id, run_id, task_id)}/links", map_index=map_index)["extra_links"]
        return f"{self.url}/{links['Training']}"

    def put(
        self,
        run_id: str,
        xcoms: Mapping[str, Any],
        *,
        state: str = "running",
        dag_id: str = "digits",
        task_id: str = "train",
        map_index: int = -1,
        try_number: int = 1,
    ) -> None:
        """Put a task into a state of this try, with these XComs and the link that its operator pushes."""
        link = {"_link_PyTorchJobTrainingLink": address(dag_id, run_id, task_id, map_index)}
        if run_id not in {run["dag_run_id"] for run in self.api.runs(dag_id)}:
            self.api.post(f"dags/{dag_id}/dagRuns", {"dag_run_id": run_id, "logical_date": None})
        ended = _moment(15) if state not in {"running", "deferred"} else None
        row = self.api.task(dag_id, run_id, task_id, map_index)["id"]
        with sa.create_engine(self.stack.database_url).begin() as rows:
            rows.execute(_PUT, {"row": row, "number": try_number, "state": state, "start": _moment(0), "end": ended})
        for key, value in {**link, **xcoms}.items():
            self._push(_task_path(dag_id, run_id, task_id), key, value, map_index)

    def set_xcom(self, run_id: str, key: str, value: Any) -> None:
        """Replace an XCom of the DAG `digits`, as a trigger does."""
        self._push(_task_path("digits", run_id, "train"), key, value, -1)

    def _push(self, path: str, key: str, value: Any, map_index: int) -> None:
        """Push an XCom as tasks do: in place of an older one, in a row of its own."""
        body = {"key": key, "value": value, "map_index": map_index}
        try:
            self.api.post(f"{path}/xcomEntries", body)
        except httpx.HTTPStatusError as error:
            if error.response.status_code != httpx.codes.CONFLICT:
                raise
            self._delete(path, key, map_index)
            self.api.post(f"{path}/xcomEntries", body)

    def _delete(self, path: str, key: str, map_index: int) -> None:
        if AIRFLOW >= (3, 2):
            self.api.delete_xcom(path, key, map_index)
        else:  # its API deletes none
            with sa.create_engine(self.stack.database_url).begin() as rows:
                rows.execute(_DELETE, {"path": unquote(path), "key": key, "place": map_index})


_DELETE = sa.text(
    "DELETE FROM xcom WHERE 'dags/' || dag_id || '/dagRuns/' || run_id || '/taskInstances/' || task_id = :path "
    "AND key=:key AND map_index=:place"
)

_PUT = sa.text(
    "UPDATE task_instance SET state=:state, start_date=:start, end_date=:end, try_number=:number "
    "WHERE CAST(id AS TEXT)=:row"
)


def _moment(minutes: float) -> datetime:
    """Return an instant as the columns have it."""
    return datetime.fromisoformat(at(minutes)).replace(tzinfo=None)


def _task_path(dag_id: str, run_id: str, task_id: str) -> str:
    return f"dags/{dag_id}/dagRuns/{quote(run_id, safe='')}/taskInstances/{task_id}"


@contextlib.contextmanager
def training_server(root: Path, database_url: str, **more: str) -> Iterator[TrainingServer]:
    """Start the server, once the DAGs are in its database."""
    passwords = root / "passwords.json"
    passwords.write_text(json.dumps(USERS))
    settings = {
        "CORE__AUTH_MANAGER": "one_dag_hidden.OneDagHidden",
        "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,guest:viewer",
        "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        **more,
    }
    config = StackConfig(
        home=root / "home",
        dags=HERE / "training_dags",
        database_url=database_url,
        settings={f"AIRFLOW__{name}": value for name, value in settings.items()} | {"PYTHONPATH": str(HERE)},
    )
    stack = Stack(config)
    url = f"{stack.url}{BELOW}"
    stack["api-server"].env["AIRFLOW__API__BASE_URL"] = url
    try:
        stack.config.home.mkdir(parents=True, exist_ok=True)
        stack.migrate()
        stack["api-server"].start()
        stack.airflow("dags", "reserialize")
        stack.wait_healthy(["api-server"])
        yield TrainingServer(stack, url, UsersApi(url, "admin"))
    finally:
        stack.stop()
