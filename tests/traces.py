"""Search for a text in an Airflow home: in its files, and in the tables of its database."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

if TYPE_CHECKING:
    from collections.abc import Iterator


def files_with(folder: Path, text: str) -> list[Path]:
    """Return the files below the folder that contain the text; files that are deleted meanwhile are skipped."""
    walked = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)  # folders may go, too
    return [path for path in walked if path.is_file() and text.encode() in _content(path)]


def tables_with(database_url: str, text: str) -> list[str]:
    with _opened(database_url) as connection:
        tables = sa.inspect(connection).get_table_names()
        return [table for table in tables if text in str(_rows(connection, table))]


def rows_of(database_url: str, table: str) -> list[tuple[Any, ...]]:
    with _opened(database_url) as connection:
        return _rows(connection, table)


def _rows(connection: sa.Connection, table: str) -> list[tuple[Any, ...]]:
    """Return all rows as stored; the memory views of PostgreSQL's driver become bytes, which show their content."""
    found = connection.execute(sa.text(f'select * from "{table}"'))  # noqa: S608 - Airflow's own table names
    return [tuple(bytes(value) if isinstance(value, memoryview) else value for value in row) for row in found]


@contextlib.contextmanager
def _opened(database_url: str) -> Iterator[sa.Connection]:
    engine = sa.create_engine(database_url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        yield connection


def _content(path: Path) -> bytes:
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes()
    return b""
