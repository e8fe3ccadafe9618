"""Tests of the openlineage provider's events of a training: the wheel with its extra and a real run."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from airflow_adapter.own_home import make_home
from airflow_versions import CONSTRAINTS
from installed import install

if TYPE_CHECKING:
    from pathlib import Path

Events = dict[tuple[str, str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def emitted(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Events:
    """Run the DAG twice, first with a failing training; return the events by task and type."""
    folder = tmp_path_factory.mktemp("lineage")
    installed = install(f"{wheel}[airflow,openlineage]", folder / "venv", constraints=CONSTRAINTS)
    transport = {"type": "file", "log_file_path": str(folder / "events"), "append": True}
    home = make_home(
        folder / "home",
        python=installed.python,
        AIRFLOW__OPENLINEAGE__TRANSPORT=json.dumps(transport),
        AIRFLOW__OPENLINEAGE__NAMESPACE="lab",
    )
    home.run("lineage_dags.py")
    found: Events = {}
    for line in (folder / "events").read_text().splitlines():
        event = json.loads(line)
        found.setdefault((event["job"]["name"].rpartition(".")[2], event["eventType"]), []).append(event)
    return found


def place(dataset: dict[str, Any]) -> str:
    return f"{dataset['namespace']} {dataset['name']}"


@pytest.mark.parametrize("task", ["in_worker", "in_triggerer"])
def test_the_output_of_a_training_is_its_model(emitted: Events, task: str) -> None:
    """See test_lineage.py for its event files."""
    (event,) = emitted[task, "COMPLETE"]
    (model,) = event["outputs"]

    assert place(model) == f"pvc://default/models {task}/model.pt"
    assert model["facets"]["version"]["datasetVersion"] == hashlib.sha256(b"model").hexdigest()


def test_a_training_that_begins_says_what_it_reads(emitted: Events) -> None:
    """At the start only the inlets and the rendered version are known."""
    for event in emitted["in_worker", "START"]:
        (dataset,) = event["inputs"]
        assert place(dataset) == "s3://bucket held-out"
        assert dataset["facets"]["version"]["datasetVersion"].startswith("3-")
        assert event["outputs"] == []


def test_a_training_that_fails_has_no_outputs(emitted: Events) -> None:
    """Its inputs are reported; files that it may have written are not."""
    (event,) = emitted["in_worker", "FAIL"]

    assert event["outputs"] == []
    assert [place(dataset) for dataset in event["inputs"]] == ["s3://bucket held-out", "s3://bucket incoming"]
