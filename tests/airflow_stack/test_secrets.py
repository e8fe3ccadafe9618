"""Test that a secret used by a job is stored in no place of Airflow or of the provider."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_stack.conftest import CANARY
from traces import files_with, rows_of, tables_with

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_stack.conftest import Lab


def test_a_secret_is_in_no_log_xcom_rendered_field_trigger_row_or_state_file(lab: Lab) -> None:
    """Searches every file and every table for the value of a secret reference and of a connection's extra.

    The last run fails while it is deferred: its error, event and XComs quote the program's last line.
    """
    waiting = [lab.start(f"{mode}_secret", "secret", "secret-shown") for mode in ("wait", "defer")]
    waiting.append(lab.start("defer_secret", "secret", "secret-shown", "1"))
    for task in waiting[1:]:
        task.wait("deferred")
    for task in waiting:
        task.wait_for_line("tick 0000")
    database = lab.stack.database_url
    while_deferred = tables_with(database, CANARY)
    triggers = rows_of(database, "trigger")

    lab.release("secret-shown")
    states = [task.wait() for task in waiting]
    files = [*kept_files_with(lab.root, CANARY), *files_with(lab.stack.config.home, CANARY)]
    found = [*files, *tables_with(database, CANARY)]

    assert states == ["success", "success", "failed"]
    assert "the token is ***" in waiting[-1].errors()[0]
    assert "canary" in str(triggers), "the row names the connection"
    for task in waiting:
        assert f"token of {len(CANARY)} characters" in task.lines()
        assert "the token is ***" in task.lines()
    assert while_deferred == []
    # as a pod's status on a cluster, the state of a failed job quotes what its program said last
    assert found == [lab.root / "jobs" / "default" / waiting[-1].ref.name / "state.json"]


def kept_files_with(folder: Path, text: str) -> list[Path]:
    """Return the files below the folder that contain the text, except job logs, which hold what programs print."""
    printed = set(folder.glob("jobs/*/*/logs/**/*"))
    return [path for path in files_with(folder, text) if path not in printed]
