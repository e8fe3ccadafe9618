"""Fixtures: a ledger in SQLite and in PostgreSQL; needs SQLAlchemy, which comes with Airflow."""

from __future__ import annotations

import importlib.util
import uuid
from typing import TYPE_CHECKING

import pytest

import postgresql
from cluster.fixtures import skip_because

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ptjob_provider.retraining.ledger import LedgerStore

if importlib.util.find_spec("sqlalchemy") is None:
    collect_ignore_glob = ["*"]


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """Start a PostgreSQL server and return its URL."""
    skip_because(postgresql.unmet())
    with postgresql.database() as address:
        yield address


@pytest.fixture
def database(server: str) -> str:
    """Create an empty database and return its URL."""
    import sqlalchemy as sa  # noqa: PLC0415 - not without Airflow

    own = f"ledger_{uuid.uuid4().hex}"
    engine = sa.create_engine(server, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {own}")
    return engine.url.set(database=own).render_as_string(hide_password=False)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty database."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("database"))
    return f"sqlite:///{tmp_path / 'ledger.db'}"


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Return a ledger name for this test."""
    return request.node.name[:200]


@pytest.fixture
def store(url: str, name: str) -> Iterator[LedgerStore]:
    from ptjob_provider.retraining.ledger import LedgerStore  # noqa: PLC0415 - not without Airflow

    with LedgerStore(url, name) as store:
        yield store
