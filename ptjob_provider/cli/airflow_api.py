"""Client of Airflow's REST API, limited to checking whether a task waits; uses only the standard library."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from ptjob_provider.core.errors import ClusterError, ClusterUnavailable, InvalidSpec, PermissionDenied
from ptjob_provider.core.installation_id import KEY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIMEOUT = 30.0
_OK = 200
_NOT_FOUND = 404
_REFUSALS = {401, 403}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Returns a redirect as the response: following it would send the token to another server."""

    def redirect_request(self, *_: object) -> None:
        """Follow none."""


_OPENER = urllib.request.build_opener(_NoRedirects)


class AirflowTasks:
    """Returns the states of task instances; implements `orphans.Waiters`.

    A response counts only if Airflow would give it for this very task instance: a wrong address, a gateway or a login
    page may respond with anything, and a job would be stopped for it.

    Args:
        url: URL of the API server, with the path below which it is served.
        token: a bearer token; "" requests one with user and password, or without them if Airflow lets everybody in.
        user: the user's name.
        password: the user's password.

    Raises:
        InvalidSpec: the URL is invalid.
    """

    def __init__(self, url: str, *, token: str = "", user: str = "", password: str = "") -> None:
        if urlsplit(url).scheme not in {"http", "https"}:
            raise InvalidSpec.of("--airflow-url", url, "an address that begins with http:// or https://")
        self._url = url.rstrip("/")
        self._token = token
        self._login = {"username": user, "password": password} if user else None
        self._is_airflow = False

    @property
    def host(self) -> str:
        """The API server's host."""
        return urlsplit(self._url).hostname or ""

    async def installation_ids(self) -> dict[str, str]:
        """Return the Variables with this Airflow's ids as key and value; empty if it has none.

        Raises:
            ClusterError: there was no response, or the user may not read Variables.
        """
        return await asyncio.to_thread(self._installation_ids)

    async def state(self, owner: Mapping[str, str]) -> str | None:
        """Return the task instance's state, see `orphans.Waiters`."""
        return await asyncio.to_thread(self._state, owner)

    def _state(self, owner: Mapping[str, str]) -> str | None:
        dag_id, run_id, task_id = (quote(owner[key], safe="") for key in ("dag_id", "run_id", "task_id"))
        mapped = f"/{owner['map_index']}" if int(owner.get("map_index", "-1")) >= 0 else ""
        status, said = self._answer(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}{mapped}")
        if status == _NOT_FOUND and _names_all(str(said.get("detail")), owner):
            return None
        is_told = (said.get("dag_id"), said.get("dag_run_id"), said.get("task_id")) == _ids(owner)
        if status != _OK or not is_told or "state" not in said:
            raise ClusterError(f"Airflow at {self._url} answered {status}: {_short(said)}", code=status)
        return str(said["state"] or "none")

    def _installation_ids(self) -> dict[str, str]:
        status, said = self._answer(f"/api/v2/variables?limit=100&variable_key_pattern={KEY_PREFIX}")
        if status != _OK or not isinstance(said.get("variables"), list):
            raise ClusterError(f"Airflow at {self._url} answered {status}: {_short(said)}", code=status)
        found = {str(each["key"]): str(each["value"]) for each in said["variables"]}
        return {key: value for key, value in found.items() if key.startswith(KEY_PREFIX)}

    def _answer(self, path: str) -> tuple[int, dict[str, Any]]:
        """Return an Airflow's status and response.

        Raises:
            PermissionDenied: the user may not read it.
            ClusterError: the server is not an Airflow.
        """
        if not self._is_airflow:
            status, said = self._ask("/api/v2/version")
            if status != _OK or not str(said.get("version", ""))[:1].isdecimal() or "git_version" not in said:
                raise ClusterError(f"{self._url} does not answer as an Airflow: {status}, {_short(said)}", code=status)
            self._is_airflow = True
        self._token = self._token or self._get_token()
        status, said = self._ask(path)
        if status in _REFUSALS:
            raise PermissionDenied(f"Airflow at {self._url} refused the request: {_short(said)}", code=status)
        return status, said

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
            with _OPENER.open(request, timeout=_TIMEOUT) as answer:
                return answer.status, _parsed(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, _parsed(error.read())
        except OSError as error:
            why = getattr(error, "reason", None) or error
            raise ClusterUnavailable(
                f"Airflow at {self._url} does not answer: {getattr(why, 'strerror', None) or why}"
            ) from error


def _ids(owner: Mapping[str, str]) -> tuple[str, str, str]:
    return owner["dag_id"], owner["run_id"], owner["task_id"]


def _names_all(detail: str, owner: Mapping[str, str]) -> bool:
    """Return whether a text is Airflow's own message that this task instance does not exist."""
    return all(f"{name}: `{owner[name]}`" in detail for name in ("dag_id", "run_id", "task_id"))


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {"no JSON": text[:200].decode(errors="replace")}
    return found if isinstance(found, dict) else {}


def _short(said: Mapping[str, Any]) -> str:
    return str(said.get("detail", said))[:200]
