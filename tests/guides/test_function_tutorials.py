"""Run the files, commands and cells of docs/tutorials/from-a-function.md and notebook.md on this machine."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest

from guide_pages import DOCS, Reader, blocks, lines_below

if TYPE_CHECKING:
    from pathlib import Path

FUNCTION = (DOCS / "tutorials" / "from-a-function.md").read_text()
NOTEBOOK = (DOCS / "tutorials" / "notebook.md").read_text()

KERNEL = """
import ast, asyncio, sys
space = {"In": [""], "get_ipython": lambda: None, "__name__": "__main__"}
async def kernel(cells):
    for number, cell in enumerate(cells):
        space["In"].append(cell)
        *above, last = ast.parse(cell).body
        show = isinstance(last, ast.Expr)
        file = f"<ipython-input-{number}>"
        exec(compile(ast.Module(above if show else [*above, last], []), file, "exec"), space)
        if show:
            print("Out:", eval(compile(ast.Expression(last.value), file, "eval"), space))
asyncio.run(kernel(sys.stdin.read().split("# next cell\\n")))
"""
"""Run cells as IPython does: in a running event loop, printing the value of a last expression."""

LOADED = """
import sys
from airflow.sdk import DAG, task
def theirs():
    pass
with DAG("theirs", schedule=None):
    task(theirs)()
before = set(sys.modules)
import nightly_fit
print(*set(sys.modules) - before)
"""
"""Print the modules that the file loads in addition to those of a file with `@task` alone."""

RUNS_JOBS = re.compile(
    r"ptjob_provider\.(airflow\.(compat_triggers|hooks|outcome|supervisor|task_|triggers)"
    r"|core\.(backend|code\.folder|diagnosis|history|kinds|kubernetes|local|logs|run\.(session|submit|follow)))"
)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Return a reader with the files of the first page."""
    reader = Reader(tmp_path_factory.mktemp("function"))
    reader.save(FUNCTION)
    return reader


def test_ten_lines_of_pytorch_train(reader: Reader) -> None:
    """Without this package."""
    assert re.fullmatch(r"loss 0\.0\d+\n", reader.run("bash", "-ec", lines_below(FUNCTION, "Ten lines of PyTorch")))


def test_the_function_trains_with_two_processes(reader: Reader) -> None:
    """The log is shown, the return value arrives, and the model can be copied from its claim."""
    shown = reader.run("bash", "-ec", lines_below(FUNCTION, "Two processes"))

    assert re.search(r"^step 150: loss 0\.0\d+$", shown, re.MULTILINE)
    assert re.search(r"^returned 0\.0\d+, [1-9]\d+ bytes$", shown, re.MULTILINE)
    assert (reader.folder / "fit.pt").stat().st_size > 0


def test_the_function_is_a_nightly_dag(reader: Reader) -> None:
    shown = reader.run("bash", "-ec", lines_below(FUNCTION, "Every night"))

    assert re.search(r"model pvc://models/\S+/fit\.pt, loss 0\.0\d+", shown), shown


def test_parsing_the_dag_loads_what_checks_its_arguments_and_nothing_else(reader: Reader) -> None:
    """It loads no packages besides Airflow's, and none of our modules that run jobs: DAG files are parsed all day."""
    loaded = set(reader.run(sys.executable, "-c", LOADED).splitlines()[-1].split())

    assert {"nightly_fit", "ptjob_provider.airflow.decorators", "ptjob_provider.core.spec.job"} <= loaded
    packages = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names)
    assert packages <= {"nightly_fit", "ptjob_provider", "airflow"}
    assert not [name for name in loaded if RUNS_JOBS.match(name) or name.startswith("airflow.providers")]


def test_a_notebooks_cells_train(tmp_path: Path) -> None:
    """A failure is shown as on the page."""
    (failure,) = re.findall(r"^failed: master-0 \(rank 0\)( .*)$", NOTEBOOK, re.MULTILINE)

    shown = Reader(tmp_path).run(sys.executable, "-c", KERNEL, given="# next cell\n".join(blocks(NOTEBOOK, "python")))

    assert re.search(r"^Out: {'loss': \d\S+}$", shown, re.MULTILINE), shown
    assert re.search(r"^Out: <PyTorchJob default/fit-\w+>$", shown, re.MULTILINE)
    assert re.search(r"^step 950: loss 0\.0\d+$", shown, re.MULTILINE)
    assert re.search(rf"failed: (master|worker)-0 \(rank [01]\){re.escape(failure)}", shown), shown
