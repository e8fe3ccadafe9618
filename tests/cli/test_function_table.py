"""Tests of the function table: each function returns the same as the program in a job's manifest."""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

from function_modules import cells, notebook
from function_table import Case, cases, check, returned_by
from ptjob_provider.core.code.function import from_function
from ptjob_provider.core.code.program import job_command
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.spec import TrainingJob
from recorded import OWNER

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest


def container(case: Case, function: Callable[..., Any]) -> dict[str, Any]:
    """Return rank 0's container in the function's manifest."""
    fields = {"workers": 2, "image": "none", "name": "table"}
    args, kwargs, modules = case.given(function)
    command = job_command(from_function(function, modules=modules), function, args, kwargs, fields=fields)
    manifest = PYTORCHJOB.render(TrainingJob.parse(**fields, command=command), owner=OWNER, attempt=1).manifest
    (found,) = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    return dict(found)


def test_a_function_of_a_file_returns_the_same_in_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program runs in a process that has neither this package nor the file."""
    files, pod = tmp_path / "files", tmp_path / "pod"
    files.mkdir()
    pod.mkdir()

    check((case, returned_by(container(case, case.function), pod)) for case in cases(files, monkeypatch))


def test_a_function_of_a_notebook_returns_the_same_in_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every statement is a cell of its own."""
    files, pod = tmp_path / "files", tmp_path / "pod"
    files.mkdir()
    pod.mkdir()

    def of_notebook(case: Case) -> Callable[..., Any]:
        module = types.ModuleType("__main__")
        monkeypatch.setitem(sys.modules, "__main__", module)
        function: Callable[..., Any] = notebook(*cells(case.text), module=module)
        return function

    check((case, returned_by(container(case, of_notebook(case)), pod)) for case in cases(files, monkeypatch))
