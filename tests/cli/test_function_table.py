"""Test of the function table: each function returns the same as the program in a job's manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from function_table import cases, check, returned_by
from ptjob_provider.core.code.function import from_function
from ptjob_provider.core.code.program import job_command
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.spec import TrainingJob
from recorded import OWNER

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from function_table import Case


def container(case: Case) -> dict[str, Any]:
    """Return rank 0's container in the function's manifest."""
    fields = {"workers": 2, "image": "none", "name": "table"}
    source = from_function(case.function, modules=case.modules)
    command = job_command(source, case.function, case.args, case.kwargs, fields=fields)
    manifest = PYTORCHJOB.render(TrainingJob.parse(**fields, command=command), owner=OWNER, attempt=1).manifest
    (found,) = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    return dict(found)


def test_a_manifest_has_a_program_that_returns_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program runs in a process that has neither this package nor the file."""
    files, pod = tmp_path / "files", tmp_path / "pod"
    files.mkdir()
    pod.mkdir()

    check((case, returned_by(container(case), pod)) for case in cases(files, monkeypatch))
