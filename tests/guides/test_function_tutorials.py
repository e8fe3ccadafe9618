"""docs/tutorials/from-a-function.md and notebook.md on this machine: files are saved, lines and cells are run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from guide_pages import DOCS

if TYPE_CHECKING:
    from pathlib import Path

FUNCTION = (DOCS / "tutorials" / "from-a-function.md").read_text()
NOTEBOOK = (DOCS / "tutorials" / "notebook.md").read_text()
BLOCK = re.compile(r'^<!-- tested: [^\n]*\n```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.DOTALL | re.MULTILINE)

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
"""Runs cells as IPython does: with an event loop that runs, and the value of a last expression shown."""

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
"""Modules that the file loads although one with `@task` alone has not."""

RUNS_JOBS = re.compile(
    r"ptjob_provider\.(airflow\.(compat_triggers|hooks|outcome|supervisor|task_|triggers)"
    r"|core\.(backend|code\.folder|diagnosis|history|kinds|kubernetes|local|logs|run\.(session|submit|follow)))"
)

pytestmark = pytest.mark.timeout(600)


def run(folder: Path, *command: str, given: str = "") -> str:
    """Run a command as a reader does, without settings of Airflow or of ours, and return what it prints."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PTJOB"))}
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"  # noqa: PTH120 - a text
    soon = {"AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "1"}  # a failure is known at once
    variables = {**outside, **soon, "PATH": path, "HOME": str(folder)}  # jobs are in ~/airflow/ptjob
    done = subprocess.run(
        command,
        cwd=folder,
        env=variables,
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files of the first page."""
    folder = tmp_path_factory.mktemp("function")
    for _, name, text in BLOCK.findall(FUNCTION):
        if name:
            (folder / name).write_text(text)
    return folder


def lines_below(heading: str) -> str:
    """Return the first page's tested lines below a heading."""
    part = FUNCTION.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return "".join(text for language, _, text in BLOCK.findall(part) if language == "bash")


def test_ten_lines_of_pytorch_train(folder: Path) -> None:
    """Without this package."""
    assert re.fullmatch(r"loss 0\.0\d+\n", run(folder, "bash", "-ec", lines_below("Ten lines of PyTorch")))


def test_the_function_trains_with_two_processes(folder: Path) -> None:
    """The log is shown, the return value arrives, and the model can be copied from its claim."""
    shown = run(folder, "bash", "-ec", lines_below("Two processes"))

    assert re.search(r"^step 150: loss 0\.0\d+$", shown, re.MULTILINE)
    assert re.search(r"^returned 0\.0\d+, [1-9]\d+ bytes$", shown, re.MULTILINE)
    assert (folder / "fit.pt").stat().st_size > 0


def test_the_function_is_a_nightly_dag(folder: Path) -> None:
    """The same file as on a cluster."""
    shown = run(folder, "bash", "-ec", lines_below("Every night"))

    assert re.search(r"model pvc://models/\S+/fit\.pt, loss 0\.0\d+", shown), shown


def test_parsing_the_dag_loads_what_checks_its_arguments_and_nothing_else(folder: Path) -> None:
    """No package that Airflow has not loaded, and nothing of ours that runs jobs: DAG files are parsed all day."""
    loaded = set(run(folder, sys.executable, "-c", LOADED).splitlines()[-1].split())

    assert {"nightly_fit", "ptjob_provider.airflow.decorators", "ptjob_provider.core.spec.job"} <= loaded
    packages = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names)
    assert packages <= {"nightly_fit", "ptjob_provider", "airflow"}
    assert not [name for name in loaded if RUNS_JOBS.match(name) or name.startswith("airflow.providers")]


def test_a_notebooks_cells_train(tmp_path: Path) -> None:
    """One after the other; the failure is told as the page shows it."""
    cells = [text for language, _, text in BLOCK.findall(NOTEBOOK) if language == "python"]
    (failure,) = re.findall(r"^failed: master-0 \(rank 0\)( .*)$", NOTEBOOK, re.MULTILINE)

    shown = run(tmp_path, sys.executable, "-c", KERNEL, given="# next cell\n".join(cells))

    assert re.search(r"^Out: {'loss': \d\S+}$", shown, re.MULTILINE), shown
    assert re.search(r"^Out: <PyTorchJob default/fit-\w+>$", shown, re.MULTILINE)
    assert re.search(r"^step 950: loss 0\.0\d+$", shown, re.MULTILINE)
    assert re.search(rf"failed: (master|worker)-0 \(rank [01]\){re.escape(failure)}", shown), shown
