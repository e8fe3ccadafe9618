"""The ledger's SQLAlchemy tables, created on first use."""

from __future__ import annotations

import sqlalchemy as sa

TABLES = sa.MetaData()

_NAME = sa.String(250)
_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite auto-increments only this integer type

LEDGERS = sa.Table("ptjob_ledgers", TABLES, sa.Column("name", _NAME, primary_key=True))
"""One row per ledger, locked by its changes."""

CLAIMS = sa.Table(
    "ptjob_claims",
    TABLES,
    sa.Column("id", _NUMBER, primary_key=True),
    sa.Column("ledger", _NAME, nullable=False),
    sa.Column("dag_id", _NAME, nullable=False),
    sa.Column("run_id", _NAME, nullable=False),
    sa.Column("training_task_id", _NAME, nullable=False),
    sa.Column("state", sa.String(10), nullable=False),  # open, had or released
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("reported", sa.Boolean, nullable=False),
    sa.Column("released_to", _NAME),
    sa.Column("claimed_at", sa.DateTime(timezone=True), server_default=sa.func.now()),
    sa.Index("ptjob_claims_of_run", "ledger", "dag_id", "run_id"),
    sa.Index("ptjob_claims_by_state", "ledger", "state"),
)

BATCHES = sa.Table(
    "ptjob_batches",
    TABLES,
    sa.Column("id", _NUMBER, primary_key=True),  # the order of arrival
    sa.Column("ledger", _NAME, nullable=False),
    sa.Column("batch_id", sa.String(500), nullable=False),
    sa.Column("uri", sa.String(2000), nullable=False),
    sa.Column("files", sa.BigInteger),
    sa.Column("bytes", sa.BigInteger),
    sa.Column("modified", sa.String(40), nullable=False),
    sa.Column("recorded_at", sa.DateTime(timezone=True), server_default=sa.func.now()),
    sa.Column("claim_id", sa.ForeignKey(CLAIMS.c.id)),
    sa.UniqueConstraint("ledger", "batch_id"),
    sa.Index("ptjob_batches_by_claim", "claim_id"),
    sa.Index("ptjob_batches_of_ledger", "ledger", "claim_id"),
)
"""One row per arrived batch; new until a run has reserved it."""

READ = sa.Table(
    "ptjob_read",
    TABLES,
    sa.Column("ledger", _NAME, primary_key=True),
    sa.Column("source", sa.String(2000), primary_key=True),
    sa.Column("until", sa.String(40), nullable=False),
)
"""Position up to which a source's events are recorded."""
