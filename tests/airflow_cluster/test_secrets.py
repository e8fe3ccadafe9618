"""Tests that a secret of the cluster and the token of the connection appear only where they were put."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from airflow_cluster.conftest import PATIENCE
from installed import ROOT
from traces import files_with, rows_of, tables_with

if TYPE_CHECKING:
    from airflow_cluster.conftest import Lab
    from task_run import TaskRun


KINDS = ("pytorchjobs", "pods", "events", "configmaps", "persistentvolumeclaims", "services")
CREDENTIALS = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY|eyJhbGciOi|LS0tLS1CRUdJTiB")
"""A private key, a token, or a base64-encoded key or certificate."""

PIECE = 120
"""Length of the token's beginning to search for: a text may be shortened before it is masked."""

THE_DATABASE = {"airflow.db", "airflow.db-wal"}
"""SQLite's files: the trigger's event is stored in a table, and deleted rows are overwritten later."""


def kinds_with(lab: Lab, text: str) -> set[str]:
    """Return the kinds of objects in the namespace that contain the text, Secrets excluded."""
    return {kind for kind in KINDS if text in str(lab.cluster.kubectl.list(kind, namespace=lab.namespace))}


def places_with(lab: Lab, text: str) -> set[str]:
    """Return the folders of Airflow's home, the tables and the kinds of objects that contain the text."""
    home = lab.stack.config.home
    folders = {path.relative_to(home).parts[0] for path in files_with(home, text)}
    return folders | set(tables_with(lab.stack.database_url, text)) | kinds_with(lab, text)


def test_a_secret_that_a_program_keeps_is_found_nowhere(lab: Lab, runs: dict[str, TaskRun]) -> None:
    """After the run the value of the secret is nowhere; while deferred, the token is in no table either."""
    task = runs["keeps-secret"]
    database = lab.stack.database_url
    task.wait("deferred", timeout=PATIENCE)
    task.wait_for_line(f"a canary of {len(lab.secrets.canary)} characters", timeout=PATIENCE)
    triggers = [row for row in rows_of(database, "trigger") if task.ref.uid in str(row)]
    while_deferred = [*tables_with(database, lab.secrets.canary), *tables_with(database, lab.secrets.access)]

    lab.release(task.ref)

    assert task.wait(timeout=PATIENCE) == "success"
    assert len(triggers) == 1
    assert "kubernetes_default" in str(triggers), "the row names the connection"
    assert while_deferred == []
    assert places_with(lab, lab.secrets.canary) == set()


def test_secrets_that_airflow_knows_are_masked_in_the_last_output_of_a_program(
    lab: Lab, runs: dict[str, TaskRun]
) -> None:
    """Airflow masks the connection's token in log, error and result; it does not know the cluster's own secrets.

    The kubelet quotes the last output of a failed container in the pod's status, and the operator in an event.
    """
    task = runs["tells-secret"]

    assert task.wait(timeout=PATIENCE) == "failed"

    assert "refused: ***" in task.lines()
    assert "“refused: ***”" in task.errors()[0].splitlines()[0]
    assert f"it said {lab.secrets.told}" in task.lines()
    assert places_with(lab, lab.secrets.access[:PIECE]) == {"pods", "events"}
    expected = {"logs", "components", "pods", "events", "pytorchjobs"}
    assert places_with(lab, lab.secrets.told) - THE_DATABASE == expected


def test_no_recorded_object_carries_a_credential() -> None:
    """The test data contains objects recorded from real clusters."""
    files = [path for path in (ROOT / "tests" / "data").rglob("*") if path.is_file()]

    assert files
    assert [path.name for path in files if CREDENTIALS.search(path.read_bytes())] == []
