"""Airflow's REST API, as much of it as knowing whether a task waits takes; with the standard library alone."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from ptjob_provider.core.errors import ClusterError, ClusterUnavailable, InvalidSpec, PermissionDenied

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIMEOUT = 30.0
_NOT_FOUND = 404
_REFUSALS = {401, 403}


class AirflowTasks:
    """Says which state a task instance is in; implements `orphans.Waiters`.

    Args:
        url: of the API server, with the path below which it is served.
        token: a bearer token; "" gets one for user and password, or for nobody where Airflow lets everybody in.
        user: who asks.
        password: the user's.

    Raises:
        InvalidSpec: that is no address.
    """

    def __init__(self, url: str, *, token: str = "", user: str = "", password: str = "") -> None:
        if urlsplit(url).scheme not in {"http", "https"}:
            raise InvalidSpec.of("--airflow-url", url, "an address that begins with http:// or https://")
        self._url = url.rstrip("/")
        self._token = token
        self._login = {"username": user, "password": password} if user else None

    async def state(self, owner: Mapping[str, str]) -> str | None:
        """Return the task instance's state, see `orphans.Waiters`."""
        return await asyncio.to_thread(self._state, owner)

    def _state(self, owner: Mapping[str, str]) -> str | None:
        dag_id, run_id, task_id = (quote(owner[key], safe="") for key in ("dag_id", "run_id", "task_id"))
        mapped = f"/{owner['map_index']}" if int(owner.get("map_index", "-1")) >= 0 else ""
        self._token = self._token or self._get_token()
        status, said = self._ask(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}{mapped}")
        if status == _NOT_FOUND and owner["task_id"] in str(said.get("detail")):  # a wrong address has no such words
            return None
        if status in _REFUSALS:
            raise PermissionDenied(f"Airflow at {self._url} refused to tell: {_short(said)}", code=status)
        if status >= _NOT_FOUND or "state" not in said:
            raise ClusterError(f"Airflow at {self._url} answered {status}: {_short(said)}", code=status)
        return str(said["state"] or "none")

    def _get_token(self) -> str:
        status, said = self._ask("/auth/token", self._login)
        if "access_token" not in said:
            who = "the user and password" if self._login else "anybody without a user or a token"
            raise PermissionDenied(f"Airflow at {self._url} does not let {who} in ({status})", code=status)
        return str(said["access_token"])

    def _ask(self, path: str, body: Mapping[str, str] | None = None) -> tuple[int, dict[str, Any]]:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(f"{self._url}{path}", data=data, headers=headers)  # noqa: S310 - see __init__
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310 - the same
                return answer.status, _parsed(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, _parsed(error.read())
        except OSError as error:
            raise ClusterUnavailable(f"Airflow at {self._url} does not answer: {error}") from error


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {"detail": text[:200].decode(errors="replace")}
    return found if isinstance(found, dict) else {}


def _short(said: Mapping[str, Any]) -> str:
    return str(said.get("detail", said))[:200]
