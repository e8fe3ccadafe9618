"""Where a text can be found in an Airflow home: files, and the tables of its database."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def files_with(folder: Path, text: str) -> list[Path]:
    """Return the files below the folder that contain the text."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if text.encode() in path.read_bytes()]


def tables_with(database: Path, text: str) -> list[str]:
    """Return the tables of Airflow's database that contain the text in any column."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        tables = [name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")]
    return [table for table in tables if text in str(rows_of(database, table))]


def rows_of(database: Path, table: str) -> list[tuple[Any, ...]]:
    """Return all rows of one table."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return connection.execute(f'select * from "{table}"').fetchall()  # noqa: S608 - Airflow's own names
