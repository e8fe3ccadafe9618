"""Client of Airflow's REST API: states of task instances, ids of the installation, and the version."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import aiohttp
import click

from ptjob_provider.cli.output import EXIT_USAGE, Failure
from ptjob_provider.core.errors import ClusterError, ClusterUnavailable, InvalidSpec, PermissionDenied
from ptjob_provider.core.installation_id import KEY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIMEOUT = aiohttp.ClientTimeout(total=30.0)
_OK = 200
_NOT_FOUND = 404
_REFUSALS = {401, 403}
_IDS = ("dag_id", "run_id", "task_id")


def airflow_tasks(url: str, user: str | None, environ: Mapping[str, str]) -> AirflowTasks:
    """Return the client for the Airflow at this address.

    Raises:
        InvalidSpec: the address is invalid.
        Failure: there is no terminal for the password.
    """
    token = environ.get("PTJOB_AIRFLOW_TOKEN", "")
    password = environ.get("PTJOB_AIRFLOW_PASSWORD", "")
    if user and not token and not password:
        if not sys.stdin.isatty():
            why = "the password cannot be asked for without a terminal"
            raise Failure(f"--airflow-user: {why}; set $PTJOB_AIRFLOW_PASSWORD, or $PTJOB_AIRFLOW_TOKEN", EXIT_USAGE)
        password = click.prompt(f"Password of {user}", hide_input=True, err=True)
    return AirflowTasks(url, token=token, user=user or "", password=password)


class AirflowTasks:
    """Client for the states of task instances; implements `orphans.Waiters`.

    A response is accepted only if Airflow would send it for exactly this task instance. A wrong address, a gateway or a
    login page may respond with anything, and believing it would stop a job whose task still waits.

    Args:
        url: URL of the API server, with the path below which it is served.
        token: a bearer token. "": one is requested with user and password, or without a user if Airflow allows that.
        user: the user's name.
        password: the user's password.

    Raises:
        InvalidSpec: the URL is invalid.
    """

    def __init__(self, url: str, *, token: str = "", user: str = "", password: str = "") -> None:
        if urlsplit(url).scheme not in {"http", "https"}:
            raise InvalidSpec.of("--airflow-url", url, "allowed: an address that begins with http:// or https://")
        self._url = url.rstrip("/")
        self._token = token
        self._login = {"username": user, "password": password} if user else None
        self._version = ""

    @property
    def host(self) -> str:
        """The API server's host."""
        return urlsplit(self._url).hostname or ""

    async def installation_ids(self) -> dict[str, str]:
        """Return the keys and values of the Variables that contain this Airflow's ids; empty if it has no id.

        Raises:
            ClusterError: there was no response, or the user may not read Variables.
        """
        status, response = await self._get(f"/api/v2/variables?limit=100&variable_key_pattern={KEY_PREFIX}")
        if status != _OK or not isinstance(response.get("variables"), list):
            raise self._unexpected(status, response)
        variables = {str(each["key"]): str(each["value"]) for each in response["variables"]}
        return {key: value for key, value in variables.items() if key.startswith(KEY_PREFIX)}

    async def version(self) -> str:
        """Return Airflow's version.

        Raises:
            ClusterError: there was no response, or it is not from an Airflow.
        """
        if not self._version:
            status, response = await self._request("/api/v2/version")
            version = str(response.get("version", ""))
            if status != _OK or not version[:1].isdecimal() or "git_version" not in response:
                raise ClusterError(
                    f"{self._url} does not answer as an Airflow: {status}, {_short(response)}", code=status
                )
            self._version = version
        return self._version

    async def state(self, owner: Mapping[str, str]) -> str | None:
        """Return the task instance's state, see `orphans.Waiters`."""
        dag_id, run_id, task_id = ids = (owner["dag_id"], owner["run_id"], owner["task_id"])
        mapped = f"/{owner['map_index']}" if int(owner.get("map_index", "-1")) >= 0 else ""
        path = "/dags/{}/dagRuns/{}/taskInstances/{}".format(
            *(quote(each, safe="") for each in (dag_id, run_id, task_id))
        )
        status, response = await self._get(f"/api/v2{path}{mapped}")
        detail = str(response.get("detail"))  # a 404 of Airflow itself names the task instance that does not exist
        if status == _NOT_FOUND and all(f"{name}: `{owner[name]}`" in detail for name in _IDS):
            return None
        is_requested = tuple(response.get(name) for name in ("dag_id", "dag_run_id", "task_id")) == ids
        if status != _OK or not is_requested or "state" not in response:
            raise self._unexpected(status, response)
        return str(response["state"] or "none")

    def _unexpected(self, status: int, response: Mapping[str, Any]) -> ClusterError:
        return ClusterError(f"Airflow at {self._url} answered {status}: {_short(response)}", code=status)

    async def _get(self, path: str) -> tuple[int, dict[str, Any]]:
        """Return the HTTP status and the JSON response.

        Raises:
            PermissionDenied: the user may not read this path.
            ClusterError: the server is not an Airflow.
        """
        await self.version()
        self._token = self._token or await self._get_token()
        status, response = await self._request(path)
        if status in _REFUSALS:
            raise PermissionDenied(f"Airflow at {self._url} refused the request: {_short(response)}", code=status)
        return status, response

    async def _get_token(self) -> str:
        status, response = await self._request("/auth/token", self._login)
        if "access_token" not in response:
            who = "the user and password" if self._login else "anybody without a user or a token"
            raise PermissionDenied(f"Airflow at {self._url} does not let {who} in ({status})", code=status)
        return str(response["access_token"])

    async def _request(self, path: str, body: Mapping[str, str] | None = None) -> tuple[int, dict[str, Any]]:
        """Return the HTTP status and the JSON response; a redirect is not followed, because it would get the token."""
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        method = "POST" if body else "GET"
        try:
            async with (
                aiohttp.ClientSession(timeout=_TIMEOUT, trust_env=True) as session,
                session.request(
                    method, f"{self._url}{path}", json=body, headers=headers, allow_redirects=False
                ) as response,
            ):
                return response.status, _parsed(await response.read())
        except (aiohttp.ClientError, TimeoutError) as error:
            why = str(getattr(error, "strerror", None) or error) or "no response in time"
            raise ClusterUnavailable(f"Airflow at {self._url} does not answer: {why}") from error


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {"no JSON": text[:200].decode(errors="replace")}
    return value if isinstance(value, dict) else {}


def _short(response: Mapping[str, Any]) -> str:
    return str(response.get("detail", response))[:200]
