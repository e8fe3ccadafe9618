"""docs/tutorials/first-model.md and nightly-dag.md on this machine: their files are saved, their lines are run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from guide_pages import DOCS

FIRST = (DOCS / "tutorials" / "first-model.md").read_text()
NIGHTLY = (DOCS / "tutorials" / "nightly-dag.md").read_text()
IMAGE = "registry.example.com/team/first:1"

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class Shell:
    """A folder, and a shell in it as a reader of the pages has one."""

    folder: Path

    def save(self, page: str) -> None:
        """Save each block that has a file's name."""
        for name, text in re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```', page, re.DOTALL | re.MULTILINE):
            (self.folder / name).write_text(text)

    def run(self, *headings: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the tested lines below these headings of the first page, one after the other."""
        parts = [FIRST.partition(f"\n## {heading}\n")[2].partition("\n## ")[0] for heading in headings]
        tested = r"^<!-- tested: [^\n]*\n```bash\n(.*?)^```"
        blocks = [block for part in parts for block in re.findall(tested, part, re.DOTALL | re.MULTILINE)]
        return self.lines("".join(blocks), **variables)

    def lines(self, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a script; the first command that fails ends it."""
        outside = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PTJOB"))}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "-ec", script],
            cwd=self.folder,
            env={**outside, **variables, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Return a shell in a folder with the files of both pages."""
    shell = Shell(tmp_path_factory.mktemp("first"))
    shell.save(FIRST)
    shell.save(NIGHTLY)
    return shell


@pytest.fixture(scope="module")
def first_run(shell: Shell) -> subprocess.CompletedProcess[str]:
    """Return what a reader of the first page sees until the end of its run."""
    return shell.run("Run it", "Look at it")


def settings(shell: Shell) -> dict[str, str]:
    """Return the variables that the first page exports, with the second one's name of the image."""
    return {
        "AIRFLOW_HOME": str(shell.folder / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(shell.folder),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__PTJOB__BACKEND": "local",
        "AIRFLOW__PTJOB__LOCAL_IMAGES": json.dumps(dict.fromkeys(("first", IMAGE), str(shell.folder))),
    }


def test_the_first_model_is_trained_and_shown_as_the_page_says(first_run: subprocess.CompletedProcess[str]) -> None:
    """The loss falls, and the model is in the claim's folder."""
    assert first_run.returncode == 0, first_run.stdout
    losses = [float(loss) for loss in re.findall(r"step \d+: loss (\d+\.\d+)", first_run.stdout)]
    assert losses[0] > 0.1 > losses[5]
    assert "pvc://models/first/model.pt" in first_run.stdout
    assert first_run.stdout.splitlines()[-2:] == ["logs", "model.pt"]


@pytest.mark.usefixtures("first_run")
def test_the_nightly_dag_trains_and_reports(shell: Shell) -> None:
    """The same file as on a cluster; the image is the first page's folder."""
    done = shell.lines("python nightly.py", **settings(shell))

    assert done.returncode == 0, done.stdout
    ((run, loss),) = re.findall(r"model pvc://models/(\S+)/model\.pt, loss (\d+\.\d+)", done.stdout)
    assert float(loss) < 0.1
    assert (shell.folder / "airflow" / "ptjob" / "claims" / "trainings" / "models" / run / "model.pt").is_file()


@pytest.mark.usefixtures("first_run")
def test_the_failure_is_told_as_the_page_shows_it(shell: Shell) -> None:
    """With the replica that failed first, the exception and the advice."""
    (shown,) = re.findall(r"^failed: master-0 \(rank 0\)( .*)$", FIRST, re.MULTILINE)

    done = shell.run("See a failure", **settings(shell))

    assert re.search(rf"failed: (master|worker)-0 \(rank [01]\){re.escape(shown)}", done.stdout), done.stdout
    assert "raise ValueError" not in (shell.folder / "train.py").read_text()
