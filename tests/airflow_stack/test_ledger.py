"""Tests of runs that are cleared or deleted after they reserved batches; Airflow and the ledger use PostgreSQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

import postgresql
from airflow_stack.conftest import lab_in
from cluster.fixtures import skip_because
from task_run import TaskRun, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_stack.conftest import Lab

PATIENCE = 600

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, tell: Callable[[str], None]) -> Iterator[Lab]:
    """Start a stack, with the ledger as a second database of its PostgreSQL server, and a connection to it."""
    if unmet := postgresql.unmet():
        skip_because(unmet)
    with postgresql.database(tell) as address:
        engine = sa.create_engine(address, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        with engine.connect() as connection:
            connection.exec_driver_sql("CREATE DATABASE ledger")
        with lab_in(tmp_path_factory.mktemp("airflow"), database_url=address) as lab:
            at = engine.url
            fields = {"host": at.host, "port": at.port, "login": at.username, "password": at.password}
            known = {"connection_id": "ledger", "conn_type": "postgres", "schema": "ledger", **fields}
            lab.stack.api.post("connections", known)
            yield lab


@dataclass(frozen=True)
class Retraining:
    """The DAGs of one name in `dags/retraining.py`."""

    lab: Lab
    name: str

    def drop(self, *names: str) -> None:
        """Announce these batches in one event."""
        api, dag_id = self.lab.stack.api, f"{self.name}_arrive"
        assert api.wait_for_run(dag_id, api.trigger(dag_id, {"names": names}), timeout=PATIENCE) == "success"

    def let(self, *, fail: bool = False) -> None:
        """Let the trainings continue, and succeed or fail."""
        marker = self.lab.work / f"{self.name}.fail"
        marker.touch() if fail else marker.unlink(missing_ok=True)
        self.lab.release(f"{self.name}.go")

    def run(self, number: int) -> str:
        """Wait for the run with this number, counted from 0, and return its id."""
        until(lambda: len(self._runs()) > number, what=f"run {number} of {self.name}", timeout=PATIENCE)
        return str(self._runs()[number]["dag_run_id"])

    def ended(self, number: int) -> list[str | None]:
        """Wait for the run to end, and return the states of its `claim` and `train` tasks."""
        run_id = self.run(number)
        self.lab.stack.api.wait_for_run(f"{self.name}_retrain", run_id, timeout=PATIENCE)
        return [self.task(number, task_id).state for task_id in ("claim", "train")]

    def task(self, number: int, task_id: str = "train") -> TaskRun:
        return TaskRun(self.lab.stack, f"{self.name}_retrain", self.run(number), task_id)

    def new(self, number: int) -> list[str]:
        """Return the batches that were new in a run."""
        return list(self.task(number, "claim").xcom()["new"])

    def _runs(self) -> list[dict[str, Any]]:
        return self.lab.stack.api.runs(f"{self.name}_retrain")[::-1]


def test_a_training_that_is_cleared_after_its_batches_went_to_another_is_refused(lab: Lab) -> None:
    """Cleared alone, it would train on another run's new batches; cleared with its claim task, it finds nothing new."""
    it = Retraining(lab, "cleared")
    it.let(fail=True)
    it.drop("b1")
    assert it.ended(0) == ["success", "failed"]
    it.let()
    it.drop("b2")
    assert it.ended(1) == ["success", "success"]
    assert it.new(1) == ["b1", "b2"]

    it.task(0).clear()
    assert it.ended(0) == ["success", "failed"]  # and the run: cleared while it is being marked failed, it stays failed
    refused = it.task(0)

    attempt = refused.now["try_number"]
    assert any(f"were given to run {it.run(1)}" in error for error in refused.errors(attempt)), refused.text(attempt)
    assert "was submitted" not in refused.text(attempt)

    lab.stack.api.clear("cleared_retrain", it.run(0), "claim", "train")
    until(lambda: it.task(0).state == "skipped", what="the skipped run", timeout=PATIENCE)
    assert it.task(0, "claim").state == "skipped"


def test_a_deleted_run_counts_by_the_reported_success_of_its_training(lab: Lab) -> None:
    """The batches of a success stay used; those of a failure are new again."""
    it = Retraining(lab, "deleted")
    it.let()
    it.drop("b1")
    assert it.ended(0) == ["success", "success"]
    lab.stack.api.delete_run("deleted_retrain", it.run(0))
    it.let(fail=True)
    it.drop("b2")
    assert it.ended(0) == ["success", "failed"]
    first = it.task(0, "claim").xcom()
    lab.stack.api.delete_run("deleted_retrain", it.run(0))
    it.let()
    it.drop("b3")
    assert it.ended(0) == ["success", "success"]

    assert (first["new"], first["all"]) == (["b2"], ["b1", "b2"])
    assert it.new(0) == ["b2", "b3"]
