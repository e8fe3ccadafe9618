"""Every function of the table returns the same as a local job, and as the program of a PyTorchJob or a TrainJob."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from function_table import cases, check, returned_by
from ptjob_provider import train
from ptjob_provider.core import kinds
from ptjob_provider.core.code.function import from_function
from ptjob_provider.core.code.program import job_command
from ptjob_provider.core.spec import TrainingJob
from recorded import OWNER

if TYPE_CHECKING:
    from pathlib import Path

    from function_table import Case


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    """Return the functions, in files of their own."""
    (tmp_path / "files").mkdir()
    return cases(tmp_path / "files", monkeypatch)


def container(case: Case, kind: str) -> dict[str, Any]:
    """Return the container of rank 0 in the function's manifest."""
    fields = {"kind": kind, "workers": 2, "image": "none", "name": "table"}
    source = from_function(case.function, modules=case.modules)
    command = job_command(source, case.function, case.args, case.kwargs, fields=fields)
    rendered = kinds.named(kind).render(TrainingJob.parse(**fields, command=command), owner=OWNER, attempt=1)
    spec = rendered.manifest["spec"]
    if kind == "TrainJob":
        found: dict[str, Any] = spec["trainer"]
    else:
        found = spec["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    return found


@pytest.mark.parametrize("kind", ["PyTorchJob", "TrainJob"])
def test_a_manifest_has_a_program_that_returns_the_same(table: list[Case], tmp_path: Path, kind: str) -> None:
    """In a process that has neither this package nor the file."""
    pod = tmp_path / "pod"
    pod.mkdir()

    check((case, returned_by(container(case, kind), pod)) for case in table)


def test_a_job_of_this_machine_returns_the_same(
    table: list[Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `train`, with the log and the result's way through the job's object."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    monkeypatch.setenv("PTJOB_BACKEND", "local")

    jobs = [
        (case, train(case.function, *case.args, kwargs=case.kwargs, modules=case.modules, submit=True))
        for case in table
    ]

    check((case, job.wait().get("return_value")) for case, job in jobs)
