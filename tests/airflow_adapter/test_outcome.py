"""What a try tells besides its result or its error: a warning, and XComs for whoever takes care of failures."""

from __future__ import annotations

import pytest

from airflow_adapter.stand_ins import ListLogger
from ptjob_provider.airflow.outcome import log_success
from ptjob_provider.core.identity import JobRef

REF = JobRef(kind="PyTorchJob", namespace="team", name="digits", uid="u")
FAILED = {
    "replica": "digits-worker-0",
    "rank": 1,
    "exit_code": 1,
    "cause": "exit_code",
    "message": "exited with code 1",
}


@pytest.mark.parametrize("failed", [[], [FAILED]])
def test_the_log_warns_of_a_success_with_a_replica_that_failed(failed: list[dict[str, object]]) -> None:
    """And of no other one."""
    log = ListLogger()

    log_success(log, REF, {"failed_replicas": failed})

    said = "team/digits succeeded, but digits-worker-0 (rank 1) exited with code 1"
    assert log.warnings == ([said] if failed else [])
    assert log.records == [said if failed else "team/digits succeeded"]
