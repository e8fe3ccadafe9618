"""`ptjob orphans` on real jobs of this machine; the Airflow that it asks is a stand-in that speaks HTTP."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from machine import Machine

RUNS_ON = (
    "import time\nopen('/data/weights', 'wb').write(bytes(range(256)))\nprint('begun', flush=True)\ntime.sleep(600)"
)
TASK = "/api/v2/dags/digits/dagRuns/scheduled__2026-11-20/taskInstances/train"


class AirflowThatSays:
    """An API server that knows one task: it answers what the test's script says, and keeps what it was asked.

    Attributes:
        state: of the task.
        status: of the answer.
        text: instead of an answer about the task.
        asked: path and authorization of each request.
    """

    def __init__(self) -> None:
        self.state: str | None = "failed"
        self.status = 200
        self.text: str | None = None
        self.asked: list[tuple[str, str]] = []
        self.logins: list[dict[str, str]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str) -> tuple[int, str]:
        """Return status and body for a request."""
        if path == "/auth/token":
            return 201, json.dumps({"access_token": "a-token"})
        text = self.text if self.text is not None else json.dumps({"task_id": "train", "state": self.state})
        return self.status, text

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        airflow = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                airflow.asked.append((self.path, self.headers.get("Authorization", "")))
                status, text = airflow.answer(self.path)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            def do_POST(self) -> None:
                airflow.logins.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.do_GET()

            def log_message(self, *_: Any) -> None:
                """Nobody reads it."""

        return Handler


@pytest.fixture
def airflow() -> Iterator[AirflowThatSays]:
    """An Airflow of which a test says what it answers."""
    airflow = AirflowThatSays()
    yield airflow
    airflow.close()


@pytest.fixture
def running(machine: Machine) -> Machine:
    """A root with a job `train` that runs."""
    name = machine.submit("train", RUNS_ON, volumes=["data:/data"])
    machine.wait_for_line(name, "begun")
    return machine


def ask(machine: Machine, airflow: AirflowThatSays, *more: str) -> Any:
    """Ask for orphans of the installation that the machine's jobs are of."""
    arguments = ("--airflow-url", airflow.url, "--instance", "test", "--older-than", "0s")
    return machine.ptjob("orphans", *arguments, *more)


def test_without_an_airflow_all_live_jobs_are_listed_with_their_owners(running: Machine) -> None:
    """A person decides, and has the names for `ptjob delete`."""
    shown = running.ptjob("orphans", "--older-than", "0s")

    assert shown.exit_code == 0
    assert shown.output.splitlines()[0].split() == ["NAME", "PHASE", "AGE", "INSTANCE", "FOR"]
    assert shown.output.splitlines()[1].split()[:2] == ["train", "Running"]
    assert shown.output.splitlines()[1].endswith("test      digits.train scheduled__2026-11-20")
    assert running.ptjob("orphans", "--older-than", "0s", "-o", "name").stdout == "train\n"


def test_jobs_younger_than_asked_for_and_ended_ones_are_not_listed(ended: Machine, running: Machine) -> None:
    """What has ended uses nothing."""
    assert running.ptjob("orphans", "--older-than", "2d").stderr.startswith("no live jobs older than 2d")
    assert ended.ptjob("orphans", "--older-than", "0s").stdout == ""


def test_a_job_whose_task_waits_is_none_of_them(running: Machine, airflow: AirflowThatSays) -> None:
    """Deferred tasks wait as much as running ones."""
    airflow.state = "deferred"

    shown = ask(running, airflow, "--delete")

    assert (shown.exit_code, shown.stdout) == (0, "")
    assert "no jobs of test that nobody waits for in namespace default" in shown.stderr
    assert running.ptjob("list", "-o", "name").stdout == "train\n"


def test_a_job_whose_task_has_ended_is_shown_and_deleted_only_if_asked(
    running: Machine, airflow: AirflowThatSays
) -> None:
    """What it has written stays, byte for byte."""
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
    """Its run was deleted, for example."""
    airflow.status = 404
    airflow.text = json.dumps({"detail": "The Task Instance with dag_id: `digits` and task_id: `train` was not found"})

    assert "its task instance is gone" in ask(running, airflow).output


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (404, "<html>no such page</html>"),
        (404, json.dumps({"detail": "Not Found"})),
        (403, json.dumps({"detail": "Forbidden"})),
        (500, "oops"),
        (200, "<html>a login page</html>"),
    ],
)
def test_an_answer_that_is_none_deletes_nothing(
    running: Machine, airflow: AirflowThatSays, status: int, text: str
) -> None:
    """A wrong address or a missing permission must not look like a task that is gone."""
    airflow.status, airflow.text = status, text

    result = ask(running, airflow, "--delete")

    assert result.exit_code == 75
    assert "whether its task waits is not known" in result.output
    assert running.ptjob("list", "-o", "name").stdout == "train\n"


def test_another_installations_jobs_are_not_asked_about(running: Machine, airflow: AirflowThatSays) -> None:
    """Two Airflows may share a namespace."""
    result = running.ptjob("orphans", "--airflow-url", airflow.url, "--instance", "staging", "--older-than", "0s")

    assert result.exit_code == 0
    assert airflow.asked == []


def test_the_task_is_asked_for_with_a_token_for_user_and_password(
    running: Machine, airflow: AirflowThatSays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The password is on no command line; the token is asked for once."""
    monkeypatch.setenv("PTJOB_AIRFLOW_PASSWORD", "a-password")

    ask(running, airflow, "--airflow-user", "ada")

    assert airflow.logins == [{"username": "ada", "password": "a-password"}]
    assert airflow.asked == [("/auth/token", ""), (TASK, "Bearer a-token")]


def test_a_token_of_the_environment_is_taken_as_it_is(
    running: Machine, airflow: AirflowThatSays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No login is tried."""
    monkeypatch.setenv("PTJOB_AIRFLOW_TOKEN", "mine")

    ask(running, airflow)

    assert airflow.asked == [(TASK, "Bearer mine")]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--delete"], "--delete needs --airflow-url"),
        (["--older-than", "2 days"], "'2 days' is not allowed"),
        (["--airflow-url", "airflow.example.com"], "--airflow-url: 'airflow.example.com' is not allowed"),
        (["--airflow-url", "http://127.0.0.1:9", "--airflow-user", "ada"], "set $PTJOB_AIRFLOW_PASSWORD, or $PTJOB_AI"),
    ],
)
def test_wrong_usage_says_what_is_allowed(machine: Machine, arguments: list[str], text: str) -> None:
    """Nothing is asked, and nothing deleted."""
    result = machine.ptjob("orphans", *arguments)

    assert result.exit_code == 2
    assert text in " ".join(result.output.split())
