"""Tests of `@task.pytorch_job` at parse time."""

from __future__ import annotations

import re
from typing import Any

import pytest
from airflow.sdk import DAG, task
from structlog.testing import capture_logs

from ptjob_provider.airflow.decorators import PyTorchJobDecoratedOperator, pytorch_job_task
from ptjob_provider.core.errors import InvalidSpec

CONFIG = {"rate": 0.25}


def made(function: Any, *args: Any, **options: Any) -> PyTorchJobDecoratedOperator:
    with DAG("made", schedule=None):
        found: Any = pytorch_job_task(function, image="digits", **options)(*args)
    operator = found.operator
    assert isinstance(operator, PyTorchJobDecoratedOperator)
    return operator


def rated(config: dict[str, float]) -> float:
    return config["rate"] * len(CONFIG)


def test_the_task_decorator_of_airflow_offers_pytorch_job() -> None:
    """Airflow finds the decorator through this provider's entry point."""
    assert task.pytorch_job is pytorch_job_task


@pytest.mark.parametrize("kind", ["PyTorchJob", "TrainJob"])
def test_a_dry_run_shows_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("AIRFLOW__PTJOB__KIND", kind)

    made(rated, CONFIG, nproc_per_node=2 if kind == "PyTorchJob" else None).dry_run()

    assert "- torchrun\n" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["command", "args", "cmds", "arguments"])
def test_a_command_is_refused(name: str) -> None:
    with pytest.raises(InvalidSpec, match=f"@task.pytorch_job: {name}: .* is not allowed"):
        made(rated, CONFIG, **{name: ["python"]})


def test_a_function_or_argument_that_cannot_be_sent_is_refused_when_the_dag_is_parsed() -> None:
    """The error names the variable; an argument without a JSON form is refused, too."""
    rates = iter([0.5])

    def closes_over(config: dict[str, float]) -> float:
        return next(rates)

    def takes(keys: pytest.MonkeyPatch) -> None: ...

    with pytest.raises(InvalidSpec, match=r"function closes_over: 'rates' is not plain data: list_iterator \(not"):
        made(closes_over, CONFIG)
    with pytest.raises(InvalidSpec, match=r"function takes: argument 'keys' of type .*MonkeyPatch"):
        made(takes, None)


def seed_everything(seed: int) -> None: ...


seed_everything(42)


def test_a_statement_that_the_job_does_not_run_is_in_the_tasks_log() -> None:
    with capture_logs() as logged:
        made(rated, CONFIG).dry_run()

    (entry,) = logged
    assert entry["log_level"] == "warning"
    assert re.search(r"function rated: seed_everything\(42\) \(line \d+\) is not run in the job", str(entry))


def test_a_mapped_task_has_the_arguments_of_each() -> None:
    with DAG("mapped", schedule=None) as dag:
        pytorch_job_task(rated, image="digits").expand(config=[CONFIG, CONFIG])

    assert dag.get_task("rated").is_mapped
