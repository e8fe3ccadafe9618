"""Run the files and commands of docs/tutorials/first-model.md and nightly-dag.md on this machine."""

from __future__ import annotations

import json
import re

import pytest

from guide_pages import DOCS, Reader, lines_below

FIRST = (DOCS / "tutorials" / "first-model.md").read_text()
NIGHTLY = (DOCS / "tutorials" / "nightly-dag.md").read_text()
IMAGE = "registry.example.com/team/first:1"


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Return a reader with the files of both pages."""
    reader = Reader(tmp_path_factory.mktemp("first"))
    reader.save(FIRST)
    reader.save(NIGHTLY)
    return reader


@pytest.fixture(scope="module")
def first_run(reader: Reader) -> str:
    """Return the output of the first page's commands, up to the end of its run."""
    return reader.run("bash", "-ec", lines_below(FIRST, "Run it", "Look at it"))


def settings(reader: Reader) -> dict[str, str]:
    """Return the variables that the first page exports, with the image name of the second page added."""
    return {
        "AIRFLOW_HOME": str(reader.folder / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(reader.folder),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__PTJOB__BACKEND": "local",
        "AIRFLOW__PTJOB__LOCAL_IMAGES": json.dumps(dict.fromkeys(("first", IMAGE), str(reader.folder))),
    }


def test_the_first_model_is_trained_and_shown_as_the_page_says(first_run: str) -> None:
    """The loss falls, and the claim's directory has the model."""
    losses = [float(loss) for loss in re.findall(r"step \d+: loss (\d+\.\d+)", first_run)]
    assert losses[0] > 0.1 > losses[5]
    assert "pvc://models/first/model.pt" in first_run
    assert first_run.splitlines()[-2:] == ["logs", "model.pt"]


@pytest.mark.usefixtures("first_run")
def test_the_nightly_dag_trains_and_reports(reader: Reader) -> None:
    """The file is the same as on a cluster; the image is the first page's directory."""
    shown = reader.run("python", "nightly.py", **settings(reader))

    ((run, loss),) = re.findall(r"model pvc://models/(\S+)/model\.pt, loss (\d+\.\d+)", shown)
    assert float(loss) < 0.1
    assert (reader.folder / "airflow" / "ptjob" / "claims" / "trainings" / "models" / run / "model.pt").is_file()


@pytest.mark.usefixtures("first_run")
def test_the_failure_is_shown_as_on_the_page(reader: Reader) -> None:
    """It names the replica that failed first, the exception and the advice."""
    (shown,) = re.findall(r"^failed: master-0 \(rank 0\)( .*)$", FIRST, re.MULTILINE)

    seen = reader.run("bash", "-ec", lines_below(FIRST, "See a failure"), fails=True, **settings(reader))

    assert re.search(rf"failed: (master|worker)-0 \(rank [01]\){re.escape(shown)}", seen), seen
    assert "raise ValueError" not in (reader.folder / "train.py").read_text()
