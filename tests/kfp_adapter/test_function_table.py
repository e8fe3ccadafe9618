"""Test of the function table: each function returns the same as the job of a compiled pipeline's step."""

import inspect
from pathlib import Path

import pytest

from function_table import FUNCTIONS, cases, check, returned_by
from kfp_adapter.compiled import compile_pipeline, rank0, request
from ptjob_provider.kfp.component import pytorchjob_op

WITHOUT_NAMES = "positional arguments"
"""The function whose arguments have no names; a step's arguments have them."""


def test_a_function_of_a_pipeline_returns_the_same_in_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, pod = tmp_path / "files", tmp_path / "pod"
    files.mkdir()
    pod.mkdir()
    assert WITHOUT_NAMES in FUNCTIONS
    table = [case for case in cases(files, monkeypatch) if case.what != WITHOUT_NAMES]

    def define():  # noqa: ANN202 - kfp reads annotations
        for case in table:
            args, kwargs, modules = case.given(case.function)
            arguments = inspect.signature(case.function).bind(*args, **kwargs).arguments
            arguments |= arguments.pop("rest", {})
            pytorchjob_op(function=case.function, function_arguments=arguments, modules=modules, image="none")

    tasks = compile_pipeline(define, tmp_path)["root"]["dag"]["tasks"]

    steps = [tasks["pytorchjob"], *(tasks[f"pytorchjob-{n}"] for n in range(2, len(table) + 1))]
    found = [rank0(request({"root": {"dag": {"tasks": {"pytorchjob": step}}}}))["containers"][0] for step in steps]
    check((case, returned_by(each, pod)) for case, each in zip(table, found, strict=True))
