"""Test of the function table: each function returns the same as the task's job, if a DAG file has it."""

from __future__ import annotations

import contextlib
import io
from importlib import import_module
from typing import TYPE_CHECKING, Any

import yaml

from function_table import cases, check, returned_by
from ptjob_provider.airflow.compat import AIRFLOW

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

DAG_FILE = """
from airflow.sdk import DAG, task as task_of_airflow
with DAG({name!r}, schedule=None):
    MADE = task_of_airflow.pytorch_job(image="none", modules=globals().get("MODULES", ()))(train)
    MADE(*globals().get("ARGS", ()), **globals().get("KWARGS", {{}}))
"""


def test_a_function_of_a_dag_file_returns_the_same_in_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow loads the files; a task's dry run prints the manifest."""
    files, dags, pod = tmp_path / "files", tmp_path / "dags", tmp_path / "pod"
    for folder in (files, dags, pod):
        folder.mkdir()
    table = {f"case_{number}": case for number, case in enumerate(cases(files, monkeypatch))}
    for name, case in table.items():
        (dags / f"{name}_dag.py").write_text(case.text + DAG_FILE.format(name=name), encoding="utf-8")

    bag_of = import_module("airflow.dag_processing.dagbag" if AIRFLOW >= (3, 2) else "airflow.models.dagbag").DagBag
    bag = bag_of(dag_folder=dags)

    assert bag.import_errors == {}
    check((case, returned_by(container(bag.dags[name].tasks[0]), pod)) for name, case in table.items())


def container(task: Any) -> dict[str, Any]:
    """Return rank 0's container in the manifest of a task's dry run."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        task.dry_run()
    manifest = yaml.safe_load(printed.getvalue())
    (found,) = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    return dict(found)
