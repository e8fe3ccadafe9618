"""Tests of `@task.pytorch_job`: functions that run as jobs of this machine, and refusals at parse time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import DAG, task

from airflow_adapter.own_home import WITH_TORCH, make_home
from ptjob_provider.airflow.decorators import PyTorchJobDecoratedOperator, pytorch_job_task
from ptjob_provider.core.errors import InvalidSpec

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = {"rate": 0.25}


@pytest.mark.timeout(600)
def test_functions_run_as_jobs(tmp_path: Path) -> None:
    """In the worker and deferred, with and without torchrun, and with a folder next to the DAG file."""
    home = make_home(tmp_path / "home", AIRFLOW__PTJOB__LOCAL_PYTHON=WITH_TORCH)
    (home.root / "dags" / "project").mkdir()
    (home.root / "dags" / "project" / "net.py").write_text("SIZE = 3\n")

    printed = home.run("decorated_dags.py")

    value, phase, returned, digest = json.loads((home.seen / "plain.json").read_text())
    assert value == {"rate": 0.5, "sizes": [1, 2], "words": ["größer"], "run": "manual", "file": "ptjob_function"}
    assert (phase, returned, digest) == ("Succeeded", value, None)
    assert json.loads((home.seen / "deferred.json").read_text()) == [3.0, "Succeeded", 3.0, None]
    of_folder = json.loads((home.seen / "beside.json").read_text())
    assert (of_folder[0], of_folder[3][:7]) == ([3, ["net.py"]], "sha256:")
    assert f'File "{home.root}/dags/decorated_dags.py", line ' in printed
    assert "ZeroDivisionError: float division by zero" in printed


def made(function: Any, *args: Any, **options: Any) -> PyTorchJobDecoratedOperator:
    with DAG("made", schedule=None):
        found: Any = pytorch_job_task(function, image="digits", **options)(*args)
    operator = found.operator
    assert isinstance(operator, PyTorchJobDecoratedOperator)
    return operator


def rated(config: dict[str, float]) -> float:
    return config["rate"] * len(CONFIG)


def test_it_is_a_decorator_of_task() -> None:
    """Airflow finds the decorator through this provider's entry point."""
    assert task.pytorch_job is pytorch_job_task


def test_a_dry_run_shows_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    made(rated, CONFIG, nproc_per_node=2).dry_run()

    assert "- torchrun\n" in capsys.readouterr().out


def test_a_dry_run_shows_torchrun_where_trainjobs_are_preferred(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__PTJOB__KIND", "TrainJob")

    made(rated, CONFIG).dry_run()

    assert "- torchrun\n" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["command", "args", "cmds", "arguments"])
def test_a_command_is_refused(name: str) -> None:
    with pytest.raises(InvalidSpec, match=f"@task.pytorch_job: {name}: .* is not allowed"):
        made(rated, CONFIG, **{name: ["python"]})


def test_what_cannot_travel_is_refused_when_the_dag_is_parsed() -> None:
    """The error names the variable; an argument without a JSON form is refused, too."""
    rate = 0.5

    def closes_over(config: dict[str, float]) -> float:
        return rate

    def takes(keys: pytest.MonkeyPatch) -> None: ...

    with pytest.raises(InvalidSpec, match=r"function closes_over: 'rate' is a local variable of test_what"):
        made(closes_over, CONFIG)
    with pytest.raises(InvalidSpec, match=r"function takes: argument 'keys' of type .*MonkeyPatch"):
        made(takes, None)


def test_a_mapped_task_has_the_arguments_of_each() -> None:
    with DAG("mapped", schedule=None) as dag:
        pytorch_job_task(rated, image="digits").expand(config=[CONFIG, CONFIG])

    assert dag.get_task("rated").is_mapped
