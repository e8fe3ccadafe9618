"""Tests of a DAG that claims batches and trains on them, in several runs with Airflow's `dag.test()`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from airflow_adapter.own_home import Home, make_home

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(900)


@dataclass(frozen=True)
class Story:
    """Results of the runs of `ledger_dags.py`."""

    seen: Path
    output: str

    def states(self, name: str) -> list[str]:
        """The final states of claim and training."""
        return list(self._run(name)["states"])

    def handover(self, name: str) -> dict[str, Any]:
        """The claim's return value."""
        return dict(self._run(name)["handover"])

    def run_id(self, name: str) -> str:
        return str(self._run(name)["run_id"])

    def read(self, name: str) -> list[Any]:
        """The batches that the successful training received, and their version."""
        return list(json.loads(self.seen.joinpath(f"{self.run_id(name)}.read").read_text()))

    def log(self, name: str) -> str:
        return self.output.partition(f"=== {name}\n")[2].partition("=== ")[0]

    def _run(self, name: str) -> Any:
        return json.loads(self.seen.joinpath(f"{name}.json").read_text())


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Make all runs once."""
    root = tmp_path_factory.mktemp("ledger") / "home"
    connection = json.dumps({"conn_type": "sqlite", "host": str(root / "ledger.db")})
    home: Home = make_home(root, AIRFLOW_CONN_LEDGER_DB=connection)
    return Story(seen=home.seen, output=home.run("ledger_dags.py"))


@pytest.mark.parametrize("name", ["nothing", "again"])
def test_a_run_without_new_batches_is_skipped(story: Story, name: str) -> None:
    assert story.states(name) == ["skipped", "skipped"]
    assert "No new batches" in story.log(name)


def test_the_first_training_gets_what_has_arrived(story: Story) -> None:
    assert story.states("first") == ["success", "success"]
    assert story.read("first") == [["b1", "b2"], story.handover("first")["version"]]
    assert story.handover("first")["new"] == ["b1", "b2"]


def test_batches_that_arrived_during_a_run_are_taken_together_by_the_next(story: Story) -> None:
    """Two events, one of them with a known batch; neither of them has triggered a run."""
    assert story.handover("fails")["new"] == ["b3", "b4"]
    assert story.handover("fails")["all"] == ["b1", "b2", "b3", "b4"]


def test_batches_of_a_training_that_failed_are_new_again(story: Story) -> None:
    """The training failed after its model was written; the next run takes its batches together with later ones."""
    assert story.states("fails") == ["success", "failed"]
    assert story.states("after") == ["success", "success"]
    assert story.handover("after")["new"] == ["b3", "b4", "b5"]
    assert story.read("after")[0] == ["b1", "b2", "b3", "b4", "b5"]
    assert "2 batches of the run" in story.log("after")


def test_a_consumer_reads_the_model_from_the_outlets_event(story: Story) -> None:
    consumed = json.loads((story.seen / "consumed.json").read_text())
    extra, uri = consumed["asset"]["extra"], f"pvc://models/{story.run_id('after')}.pt"

    assert extra["model"]["uri"] == uri
    assert extra["model"]["sha256"] == hashlib.sha256(b"m").hexdigest()
    assert extra["data_version"] == story.handover("after")["version"]
    assert extra["job"]["attempt"] == 1
    assert consumed["alias"] == {"uri": uri, "extra": extra}
