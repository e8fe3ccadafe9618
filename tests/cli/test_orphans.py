"""Tests of `ptjob orphans` on real jobs of this machine; an HTTP server stands in for Airflow."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from rows import each_row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from machine import Machine

RUNS_ON = (
    "import time\nopen('/data/weights', 'wb').write(bytes(range(256)))\nprint('begun', flush=True)\ntime.sleep(600)"
)
TASK = "/api/v2/dags/digits/dagRuns/scheduled__2026-11-20/taskInstances/train"
VERSION = "/api/v2/version"
VARIABLES = "/api/v2/variables?limit=100&variable_key_pattern=ptjob_instance_"
IDS = {"dag_id": "digits", "dag_run_id": "scheduled__2026-11-20", "task_id": "train"}
NOT_FOUND = "The Task Instance with dag_id: `{dag_id}`, run_id: `{dag_run_id}` and task_id: `{task_id}` was not found"


class AirflowThatSays:
    """An API server that knows one task: it sends the test's scripted responses, and records the requests.

    Attributes:
        state: of the task.
        status: of the response.
        text: replaces the response about the task.
        version: the response to a request for its version.
        leads_to: another address, to which it redirects requests for its version.
        ids: its Variables that have its id; None: the user may not read Variables.
        asked: path and authorization of each request.
    """

    def __init__(self) -> None:
        self.state: str | None = "failed"
        self.status = 200
        self.text: str | None = None
        self.version = json.dumps({"version": "3.3.2", "git_version": None})
        self.ids: dict[str, str] | None = {"ptjob_instance_test": "[api] base_url http://127.0.0.1:8080"}
        self.leads_to = ""
        self.asked: list[tuple[str, str]] = []
        self.logins: list[dict[str, str]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Return the server's address."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str) -> tuple[int, str]:
        """Return status and body for a request."""
        if path == "/auth/token":
            return 201, json.dumps({"access_token": "a-token"})
        if path == VERSION:
            return (302, "") if self.leads_to else (200, self.version)
        if path == VARIABLES:
            if self.ids is None:
                return 403, json.dumps({"detail": "Forbidden"})
            variables = [{"key": key, "value": value} for key, value in self.ids.items()]
            return 200, json.dumps({"variables": variables, "total_entries": len(variables)})
        return self.status, json.dumps({**IDS, "state": self.state}) if self.text is None else self.text

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        airflow = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                airflow.asked.append((self.path, self.headers.get("Authorization", "")))
                status, text = airflow.answer(self.path)
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", f"{airflow.leads_to}{self.path}")
                self.end_headers()
                self.wfile.write(text.encode())

            def do_POST(self) -> None:
                airflow.logins.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.do_GET()

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        return Handler


@pytest.fixture
def airflow() -> Iterator[AirflowThatSays]:
    """Return an Airflow with scripted responses."""
    airflow = AirflowThatSays()
    yield airflow
    airflow.close()


@pytest.fixture
def running(machine: Machine) -> Machine:
    """Return a root with a running job `train`."""
    name = machine.submit("train", RUNS_ON, volumes=["data:/data"])
    machine.wait_for_line(name, "begun")
    return machine


def ask(machine: Machine, airflow: AirflowThatSays, *more: str) -> Any:
    """List orphans of the installation that owns the machine's jobs."""
    return machine.ptjob("orphans", "--airflow-url", airflow.url, "--older-than", "0s", *more)


def test_a_job_whose_task_has_ended_is_shown_and_deleted_only_if_asked(
    running: Machine, airflow: AirflowThatSays
) -> None:
    """Its written files are kept, byte for byte."""
    shown = ask(running, airflow)
    rows = json.loads(ask(running, airflow, "-o", "json").stdout)
    still = running.ptjob("list", "-o", "name").stdout

    deleted = ask(running, airflow, "--delete")

    assert shown.exit_code == 0
    assert "its task is failed" in shown.output
    assert (rows[0]["name"], rows[0]["why"], rows[0]["stopped"]) == ("train", "its task is failed", False)
    assert still == "train\n"
    assert deleted.exit_code == 0
    assert "stopped" in deleted.output
    deadline = time.monotonic() + 120
    while (gone := running.ptjob("get", "train").exit_code) != 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert gone == 3, "the job was there for two minutes after it had been deleted"
    assert (running.root / "claims" / "default" / "data" / "weights").read_bytes() == bytes(range(256))


def test_a_task_instance_that_is_gone_does_not_wait(running: Machine, airflow: AirflowThatSays) -> None:
    """For example because its run was deleted."""
    airflow.status = 404
    airflow.text = json.dumps({"detail": NOT_FOUND.format(**IDS)})

    assert "its task instance is gone" in ask(running, airflow).output


@each_row(
    ("status", "text"),
    [
        (404, "<html>no such page</html>"),
        (404, json.dumps({"detail": "Not Found"})),
        (404, f"no route for {TASK}"),
        (404, json.dumps({"detail": f"no route for {TASK}"})),
        (404, json.dumps({"detail": NOT_FOUND.format(**{**IDS, "dag_run_id": "another"})})),
        (404, NOT_FOUND.format(**IDS)),
        (200, json.dumps({"state": "failed"})),
        (200, json.dumps({**IDS, "task_id": "evaluate", "state": "failed"})),
        (200, json.dumps(IDS)),
        (403, json.dumps({"detail": "Forbidden"})),
        (500, "oops"),
        (200, "<html>a login page</html>"),
    ],
)
def test_an_answer_that_is_none_deletes_nothing(
    running: Machine, airflow: AirflowThatSays, status: int, text: str
) -> None:
    """A wrong address or a missing permission must not look like a deleted task instance."""
    airflow.status, airflow.text = status, text

    result = ask(running, airflow, "--delete")

    assert result.exit_code == 75
    assert "whether its task waits is not known" in result.output
    assert running.ptjob("list", "-o", "name").stdout == "train\n"


@each_row(
    ("ids", "more", "text"),
    [
        (
            {"ptjob_instance_staging": "here"},
            ["--instance", "test"],
            "'test' is not allowed; the Airflow at that address i",
        ),
        ({}, [], "it has no id: no task of it has ever submitted a job"),
        (None, [], "or say --instance"),
        (
            {"ptjob_instance_test": "[api] base_url https://production"},
            [],
            "may be a copy: its id test was made elsewh",
        ),
    ],
)
def test_no_orphan_is_stopped_unless_the_installation_is_known(
    running: Machine, airflow: AirflowThatSays, ids: dict[str, str] | None, more: list[str], text: str
) -> None:
    """A wrong address may be another Airflow's, with a failed task of that name."""
    airflow.ids = ids

    result = ask(running, airflow, "--delete", *more)

    assert result.exit_code == 2
    assert text in " ".join(result.output.split())
    assert running.ptjob("list", "-o", "name").stdout == "train\n"


@each_row(
    "ids",
    [{}, None, {"ptjob_instance_test": "elsewhere"}, {"ptjob_instance_0": "there", "ptjob_instance_test": "there"}],
)
def test_a_name_that_is_given_for_the_installation_counts(
    running: Machine, airflow: AirflowThatSays, ids: dict[str, str] | None
) -> None:
    """For an Airflow with `[ptjob] instance`, for users who may not read Variables, and after an Airflow has moved."""
    airflow.ids = ids

    assert "its task is failed" in ask(running, airflow, "--instance", "test").output


def test_an_address_that_is_no_airflows_stops_nothing(running: Machine, airflow: AirflowThatSays) -> None:
    """The only request is for the version, and it has no credentials."""
    airflow.version = json.dumps({"detail": VERSION})

    result = ask(running, airflow, "--delete", "--instance", "test")

    assert result.exit_code == 1
    assert "does not answer as an Airflow" in result.output
    assert airflow.asked == [(VERSION, "")]
    assert running.ptjob("list", "-o", "name").stdout == "train\n"


def test_a_token_goes_nowhere_but_to_the_address_that_was_named(
    running: Machine, airflow: AirflowThatSays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway redirects requests without a session to a page on another host, and that page responds."""
    monkeypatch.setenv("PTJOB_AIRFLOW_TOKEN", "mine")
    elsewhere = AirflowThatSays()
    airflow.leads_to = elsewhere.url

    result = ask(running, airflow, "--delete")
    elsewhere.close()

    assert "does not answer as an Airflow: 302" in result.output
    assert elsewhere.asked == []
    assert running.ptjob("list", "-o", "name").stdout == "train\n"


def test_the_task_is_asked_for_with_a_token_for_user_and_password(
    running: Machine, airflow: AirflowThatSays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The password is on no command line; one token is used for all requests."""
    monkeypatch.setenv("PTJOB_AIRFLOW_PASSWORD", "a-password")

    ask(running, airflow, "--airflow-user", "ada")

    assert airflow.logins == [{"username": "ada", "password": "a-password"}]
    told = [(VARIABLES, "Bearer a-token"), (TASK, "Bearer a-token")]
    assert airflow.asked == [(VERSION, ""), ("/auth/token", ""), *told]


def test_a_token_of_the_environment_is_taken_as_it_is(
    running: Machine, airflow: AirflowThatSays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No log-in is made."""
    monkeypatch.setenv("PTJOB_AIRFLOW_TOKEN", "mine")

    ask(running, airflow)

    assert airflow.asked == [(VERSION, "Bearer mine"), (VARIABLES, "Bearer mine"), (TASK, "Bearer mine")]
