"""A secret that a job uses is nowhere that Airflow or we keep things."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

from airflow_stack.conftest import CANARY

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_stack.conftest import Lab


def test_a_secret_is_in_no_log_xcom_rendered_field_trigger_row_or_state_file(lab: Lab) -> None:
    """The value of a secret reference, and a connection's extra: scanned for in every file and every table."""
    waiting = [lab.start(f"{mode}_secret", "secret", "secret-shown") for mode in ("wait", "defer")]
    waiting[1].wait("deferred")
    for task in waiting:
        task.wait_for_line("tick 0000")
    database = lab.stack.config.home / "airflow.db"
    while_deferred = tables_with(database, CANARY)
    triggers = rows_of(database, "trigger")

    lab.release("secret-shown")
    states = [task.wait() for task in waiting]
    found = [*files_with(lab.root, CANARY), *files_with(lab.stack.config.home, CANARY), *tables_with(database, CANARY)]

    assert states == ["success", "success"]
    assert "canary" in str(triggers), "the row names the connection"
    for task in waiting:
        assert f"token of {len(CANARY)} characters" in task.lines()
        assert "the token is ***" in task.lines()
    assert while_deferred == []
    assert found == []


def files_with(folder: Path, text: str) -> list[str]:
    """Return the files below the folder that contain the text; what a program itself prints is in its own log."""
    printed = {path for path in folder.glob("jobs/*/*/logs/**/*") if path.is_file()}
    files = (path for path in folder.rglob("*") if path.is_file() and path not in printed)
    return [str(path) for path in files if text.encode() in path.read_bytes()]


def tables_with(database: Path, text: str) -> list[str]:
    """Return the tables of Airflow's database that contain the text in any column."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        tables = [name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")]
    return [table for table in tables if text in str(rows_of(database, table))]


def rows_of(database: Path, table: str) -> list[tuple[Any, ...]]:
    """Return all rows of one table."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return connection.execute(f'select * from "{table}"').fetchall()  # noqa: S608 - Airflow's own names
