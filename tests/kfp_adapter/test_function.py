"""Tests of `pytorchjob_op(function=...)`: compiled into a pipeline, and run with kfp.local.

kfp reads annotations as objects, not as strings.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List  # noqa: UP035 - kfp reads them

import pytest
from kfp import dsl

from function_modules import loaded
from kfp_adapter.compiled import compile_pipeline, inputs
from kfp_adapter.conftest import LocalStep
from kfp_adapter.folders import sized, write_code, write_folder
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.run.snapshot import look
from ptjob_provider.kfp.component import pytorchjob_op
from ptjob_provider.kfp.request import Request
from ptjob_provider.kfp.step import with_folder
from rows import each_row

pytestmark = pytest.mark.filterwarnings("ignore:You may be attemping:RuntimeWarning")

NOTE = 'größer: "a" {{ b }} $$5 of $(PTJOB_ATTEMPT) $HOME'


@dataclass
class Layer:
    size: int
    rate: float = 0.5


def fit(epochs: int, rate: float, note: str, layers: list[Layer], options: dict[str, Any], *, is_last: bool) -> Any:
    return [epochs, rate, note, [layer.size + layer.rate for layer in layers], options, is_last]


def pipeline(
    epochs: int = 3,
    note: str = NOTE,
    layers: List[Dict[str, float]] = [{"size": 1}],  # noqa: B006, UP006 - as above
    is_last: bool = True,  # noqa: FBT001, FBT002 - as above
) -> None:
    arguments = {"epochs": epochs, "rate": 2.0, "note": f"of {note}", "layers": layers, "is_last": is_last}
    pytorchjob_op(function=fit, function_arguments={**arguments, "options": {"a": [1, None]}}, image="none", workers=1)


def results(machine: LocalStep) -> list[dict[str, Any]]:
    names = [job["metadata"]["name"] for job in machine.jobs()]
    return [asyncio.run(look(machine.backend, "default", name)).to_dict() for name in names]


def test_a_function_gets_the_pipelines_values(local_pipelines: LocalStep) -> None:
    """Values keep their types."""
    local_pipelines.run_pipeline(pipeline)

    (result,) = results(local_pipelines)
    assert result["job"]["name"].startswith("fit-")
    assert result["return_value"] == [3, 2.0, f"of {NOTE}", [1.5], {"a": [1, None]}, True]


def test_a_folder_that_is_an_artifact_is_the_code(tmp_path: Path, local_pipelines: LocalStep) -> None:
    """Written by an earlier step, or imported: the function imports its modules from there."""
    write_folder(tmp_path / "project")
    write = dsl.component(base_image="python:3.11", install_kfp_package=False)(write_code)

    def define() -> None:
        imported = dsl.importer(artifact_uri=str(tmp_path / "project"), artifact_class=dsl.Artifact)
        pytorchjob_op(function=sized, image="none", code=write().output, name="made")
        pytorchjob_op(function=sized, image="none", code=imported.output, name="imported")

    local_pipelines.run_pipeline(define)

    found = results(local_pipelines)
    returned = {result["job"]["name"].partition("-")[0]: result["return_value"] for result in found}
    assert returned == {"made": 3, "imported": 4}
    assert {result["code_revision"]["digest"][:7] for result in found} == {"sha256:"}


def test_an_artifact_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    """A folder is also refused if the request has other code."""
    (tmp_path / "net.tar").write_text("SIZE = 3\n")
    step = {"pipeline_run_id": "1", "pipeline_task_name": "train", "pipeline_task_id": "1", "image": "none"}
    file, absent = (dsl.Artifact(name="code", uri=str(tmp_path / name)) for name in ("net.tar", "absent"))
    allowed = "is not allowed; allowed: an artifact that is a folder with files; unpack an archive in a step before"

    with pytest.raises(InvalidSpec, match=rf"code_folder: .*net.tar' {allowed}"):
        with_folder(Request.parse(step), file)
    with pytest.raises(InvalidSpec, match=rf"code_folder: .*absent' {allowed}"):
        with_folder(Request.parse(step), absent)
    with pytest.raises(InvalidSpec, match=r"code_folder: .*leave it out: code is set"):
        with_folder(Request.parse({**step, "code": {"git": "https://git.example/mnist.git"}}), file)


def test_torchrun_starts_several_processes(tmp_path: Path) -> None:
    """An explicit name is kept."""

    def define():  # noqa: ANN202 - as above
        pytorchjob_op(function=fails, image="none", nproc_per_node=2, name="own")

    given = inputs(compile_pipeline(define, tmp_path))

    assert given["command"][:2] == ["torchrun", "--no-python"]
    assert (given["name"], "args" in given) == ("own", False)


def test_a_statement_that_the_job_does_not_run_is_a_warning_when_the_pipeline_is_compiled(tmp_path: Path) -> None:
    module = loaded(tmp_path, "def seed(n): pass\nseed(42)\nRATE = [1]\nRATE.append(2)\ndef fit(): return RATE\n")

    def define():  # noqa: ANN202 - as above
        pytorchjob_op(function=module.fit, image="none")

    with pytest.warns(UserWarning, match=r"function fit: seed\(42\) \(line 2\) is not run in the job; call it in the"):
        compile_pipeline(define, tmp_path)


def fails() -> None:
    raise ValueError


REFUSED = [
    ({"function": fails, "command": ["python"]}, r"pytorchjob_op: command: .*allowed: none; the function runs"),
    ({"function": fails, "function_arguments": {"a": 1}}, r"function fails: got an unexpected keyword argument 'a'"),
    ({"function_arguments": {"a": 1}}, "function: None is not allowed; allowed: a function"),
    ({"function": lambda: None}, "is a lambda"),
]


@each_row(("given", "expected"), REFUSED)
def test_a_function_or_argument_that_cannot_be_sent_is_refused_when_the_pipeline_is_compiled(
    given: dict[str, Any], expected: str
) -> None:
    """The message names the function and the argument."""
    with pytest.raises(InvalidSpec, match=expected):
        pytorchjob_op(image="none", **given)


def test_a_pipelines_value_inside_an_argument_is_refused(tmp_path: Path) -> None:
    """Otherwise kfp would compile it as a placeholder string."""

    def define(rate: float):  # noqa: ANN202 - as above
        pytorchjob_op(function=print, function_arguments={"rates": [rate]}, image="none")

    def of_the_run():  # noqa: ANN202 - as above
        pytorchjob_op(function=print, function_arguments={"to": {"run": dsl.PIPELINE_JOB_ID_PLACEHOLDER}}, image="none")

    with pytest.raises(InvalidSpec, match=r"function_arguments\.rates: .*allowed: a pipeline's value as the whole"):
        compile_pipeline(define, tmp_path)
    with pytest.raises(InvalidSpec, match=r"function_arguments\.to: "):
        compile_pipeline(of_the_run, tmp_path)
