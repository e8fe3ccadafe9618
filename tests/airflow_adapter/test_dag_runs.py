"""Tests of whole DAGs with Airflow's `dag.test()`; their jobs are processes of this machine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from airflow_adapter.own_home import WITH_TORCH, make_home

if TYPE_CHECKING:
    from pathlib import Path

DAGS = ("plain", "deferred", "sensed_deferred")


@dataclass(frozen=True)
class Ran:
    """Files and log of the DAG runs."""

    seen: Path
    output: str

    def state(self, dag_id: str) -> str:
        return self.seen.joinpath(f"{dag_id}.state").read_text()

    def result(self, dag_id: str) -> Any:
        return json.loads(self.seen.joinpath(f"{dag_id}.json").read_text())

    def log(self, dag_id: str) -> str:
        return self.output.partition(f"=== {dag_id}\n")[2].partition("=== ")[0]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run every DAG once, in one process with an empty home."""
    home = make_home(tmp_path_factory.mktemp("airflow") / "home")
    return Ran(seen=home.seen, output=home.run("small_dags.py", *DAGS))


@pytest.mark.parametrize(("dag_id", "size"), [("plain", 5), ("deferred", 6)])
def test_the_next_task_gets_the_result(ran: Ran, dag_id: str, size: int) -> None:
    result = ran.result(dag_id)

    assert (ran.state(dag_id), result["phase"], result["attempt"]) == ("success", "Succeeded", 1)
    assert result["model"]["uri"] == "pvc://models/train_it--1.pt"
    assert result["model"]["bytes"] == size


@pytest.mark.parametrize("dag_id", ["plain", "deferred"])
def test_every_line_of_rank_0_is_in_the_log_once(ran: Ran, dag_id: str) -> None:
    assert [ran.log(dag_id).count(f"rank 0 line {number}") for number in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("dag_id", DAGS)
def test_airflows_database_has_the_last_step_of_a_training(ran: Ran, dag_id: str) -> None:
    stored = ran.result(f"{dag_id}.progress")

    assert (stored["phase"], stored["step"], stored["total"], stored["metrics"]) == ("Succeeded", 3, 3, {"loss": 0.25})
    assert stored["curve"]["metrics"]["loss"][-1] == 0.25
    assert [(row["name"], row["phase"]) for row in stored["replicas"]] == [("master-0", "Succeeded")]


def test_a_sensor_gets_the_result_of_a_job_that_another_task_started(ran: Ran) -> None:
    result = ran.result("sensed_deferred")

    assert (ran.state("sensed_deferred"), result["phase"]) == ("success", "Succeeded")
    assert result["job"]["name"] == "somebody"
    assert result["model"]["bytes"] == 9
    assert result["owner"]["task_id"] == "start_it"


def test_functions_run_as_jobs(tmp_path: Path) -> None:
    """In the worker and deferred, with and without torchrun, and with a folder next to the DAG file."""
    home = make_home(tmp_path / "home", AIRFLOW__PTJOB__LOCAL_PYTHON=WITH_TORCH)
    (home.root / "dags" / "project").mkdir()
    (home.root / "dags" / "project" / "net.py").write_text("SIZE = 3\n")

    home.run("decorated_dags.py")

    value, phase, returned, digest = json.loads((home.seen / "plain.json").read_text())
    assert value == {"rate": 0.5, "sizes": [1, 2], "words": ["größer"], "run": "manual", "file": "ptjob_function"}
    assert (phase, returned, digest) == ("Succeeded", value, None)
    of_folder = json.loads((home.seen / "beside.json").read_text())
    assert (of_folder[0], of_folder[3][:7]) == ([3, ["net.py"]], "sha256:")
