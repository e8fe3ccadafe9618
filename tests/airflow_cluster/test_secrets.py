"""Tests that a secret of the cluster and the token of the connection appear nowhere."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from airflow_cluster.conftest import PATIENCE
from installed import ROOT
from traces import files_with, rows_of, tables_with

if TYPE_CHECKING:
    from airflow_cluster.conftest import Lab


KINDS = ("pytorchjobs", "pods", "events", "configmaps", "persistentvolumeclaims", "services")
CREDENTIALS = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY|eyJhbGciOi|LS0tLS1CRUdJTiB")
"""A private key, a token, or a base64-encoded key or certificate."""


def kinds_with(lab: Lab, text: str) -> set[str]:
    """Return the kinds of objects in the namespace that contain the text, Secrets excluded."""
    return {kind for kind in KINDS if text in str(lab.cluster.kubectl.list(kind, namespace=lab.namespace))}


def places_with(lab: Lab, text: str) -> set[str]:
    """Return the folders of Airflow's home, the tables and the kinds of objects that contain the text."""
    home = lab.stack.config.home
    folders = {path.relative_to(home).parts[0] for path in files_with(home, text)}
    return folders | set(tables_with(lab.stack.database_url, text)) | kinds_with(lab, text)


def test_a_secret_that_a_program_keeps_is_found_nowhere(lab: Lab) -> None:
    """After the run the value of the secret is nowhere; while deferred, the token is in no table either."""
    task, database = lab.start("keeps-secret"), lab.stack.database_url
    (user,) = json.loads(lab.kubeconfig.read_text())["users"]
    task.wait("deferred", timeout=PATIENCE)
    task.wait_for_line(f"a canary of {len(lab.canary)} characters", timeout=PATIENCE)
    triggers = [row for row in rows_of(database, "trigger") if task.ref.uid in str(row)]
    while_deferred = [*tables_with(database, lab.canary), *tables_with(database, user["user"]["token"])]

    lab.release(task.ref)

    assert task.wait(timeout=PATIENCE) == "success"
    assert len(triggers) == 1
    assert "kubernetes_default" in str(triggers), "the row names the connection"
    assert while_deferred == []
    assert places_with(lab, lab.canary) == set()


def test_no_recorded_object_carries_a_credential() -> None:
    """The test data contains objects recorded from real clusters."""
    files = [path for path in (ROOT / "tests" / "data").rglob("*") if path.is_file()]

    assert files
    assert [path.name for path in files if CREDENTIALS.search(path.read_bytes())] == []
