"""Where a text can be found in an Airflow home: files, and the tables of its database."""

from __future__ import annotations

import contextlib
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def files_with(folder: Path, text: str) -> list[Path]:
    """Return the files below the folder that contain the text; one that is removed meanwhile contains none."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if text.encode() in _content(path)]


def tables_with(database: Path, text: str) -> list[str]:
    """Return the tables of Airflow's database that contain the text in any column."""
    with closing(_opened(database)) as connection:
        tables = [name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")]
    return [table for table in tables if text in str(rows_of(database, table))]


def rows_of(database: Path, table: str) -> list[tuple[Any, ...]]:
    """Return all rows of one table."""
    with closing(_opened(database)) as connection:
        return connection.execute(f'select * from "{table}"').fetchall()  # noqa: S608 - Airflow's own names


def _content(path: Path) -> bytes:
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes()
    return b""


def _opened(database: Path) -> sqlite3.Connection:
    """Open it to read, and wait for whoever writes as long as Airflow's own components do."""
    return sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=60)
