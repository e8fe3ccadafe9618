"""A secret of the cluster, and the token of the connection: nowhere but where somebody has put them."""

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
"""A private key, a token, and a key or certificate in base64."""

PIECE = 120
"""So much of the token is found, too: a text that was shortened before it was masked has only its beginning."""

THE_DATABASE = {"airflow.db", "airflow.db-wal"}
"""The trigger's event passes through a table; in these files deleted rows are overwritten some time later."""


def kinds_with(lab: Lab, text: str) -> set[str]:
    """Return the kinds of objects in the namespace that contain the text, secrets themselves left out."""
    return {kind for kind in KINDS if text in str(lab.cluster.kubectl.list(kind, namespace=lab.namespace))}


def places_with(lab: Lab, text: str) -> set[str]:
    """Return the folders of Airflow's home, the tables and the kinds of objects where the text is found."""
    home = lab.stack.config.home
    folders = {path.relative_to(home).parts[0] for path in files_with(home, text)}
    return folders | set(tables_with(lab.stack.database_url, text)) | kinds_with(lab, text)


def test_a_secret_that_a_program_keeps_is_found_nowhere(lab: Lab, runs: dict[str, TaskRun]) -> None:
    """The value of a secret reference, afterwards; while deferred the token of the connection is not there, too."""
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


def test_of_what_a_program_tells_at_its_end_airflow_masks_what_it_knows(lab: Lab, runs: dict[str, TaskRun]) -> None:
    """The connection's token is starred in log, error and record; Airflow cannot know a secret of the cluster alone.

    A failed container's last words are quoted by the kubelet in the pod's status, and by the operator in an event.
    """
    task = runs["tells-secret"]

    assert task.wait(timeout=PATIENCE) == "failed"

    assert "refused: ***" in task.lines()
    assert "“refused: ***”" in task.errors()[0].splitlines()[0]
    assert f"it said {lab.secrets.told}" in task.lines()
    assert places_with(lab, lab.secrets.access[:PIECE]) == {"pods", "events"}
    told = {"logs", "components", "pods", "events", "pytorchjobs"}
    assert places_with(lab, lab.secrets.told) - THE_DATABASE == told


def test_no_recorded_object_carries_a_credential() -> None:
    """Real objects of real clusters are among the tests' data: no key, no token, no certificate."""
    files = [path for path in (ROOT / "tests" / "data").rglob("*") if path.is_file()]

    assert files
    assert [path.name for path in files if CREDENTIALS.search(path.read_bytes())] == []
