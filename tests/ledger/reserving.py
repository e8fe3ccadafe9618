"""Program that reserves batches from a ledger at a given time and prints their ids: `python reserving.py …`.

A run whose id begins with `earlier` stands in for one of the version whose reservations had no installation: it creates
that version's tables under the same locks, and writes no other columns.
"""

from __future__ import annotations

import json
import sys
import time

import sqlalchemy as sa

from ptjob_provider.core.identity import Instance
from ptjob_provider.retraining import ledger
from ptjob_provider.retraining.ledger import LedgerStore, Reserver
from ptjob_provider.retraining.reservations import Batch


class EarlierVersionStandIn(LedgerStore):
    """Reserves batches in the way of the version whose reservations had no installation."""

    def _lock(self, connection: sa.Connection) -> None:
        if not sa.inspect(connection).has_table(ledger.LEDGERS.name):
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({ledger._CREATION_LOCK})")
            if not sa.inspect(connection).has_table(ledger.LEDGERS.name):
                ledger.TABLES.create_all(connection)
                connection.exec_driver_sql("ALTER TABLE ptjob_claims DROP COLUMN installation")
        connection.execute(self._insert(ledger.LEDGERS, ("name",)), [{"name": self._name}])
        connection.execute(sa.select(ledger.LEDGERS).where(ledger.LEDGERS.c.name == self._name).with_for_update())

    def reserve_new(self, run_id: str) -> list[str]:
        """Reserve all new batches for a run, and return their ids."""
        row = {"ledger": self._name, "dag_id": "retrain", "run_id": run_id, "training_task_id": "train"}
        new = (self._of(ledger.BATCHES), ledger.BATCHES.c.claim_id.is_(None))
        with self._change() as connection:
            insert = ledger.CLAIMS.insert().values(**row, state="open", number=1, reported=False)
            (claim_id,) = connection.execute(insert).inserted_primary_key or (None,)
            found = list(connection.scalars(sa.select(ledger.BATCHES.c.batch_id).where(*new)))
            connection.execute(ledger.BATCHES.update().where(*new).values(claim_id=claim_id))
        return found


def main(url: str, name: str, run_id: str, moment: str, known: str) -> None:
    """Record the given batches, then reserve all new ones."""
    time.sleep(max(0.0, float(moment) - time.time()))
    batches = [Batch(id=each, uri=f"s3://in/{each}") for each in json.loads(known)]
    run = Reserver(installation=Instance("tests"), dag_id="retrain", run_id=run_id, training_task_id="train")
    with (EarlierVersionStandIn if run_id.startswith("earlier") else LedgerStore)(url, name) as store:
        store.record(batches, source="drop", until=run_id)
        if isinstance(store, EarlierVersionStandIn):
            new = store.reserve_new(run_id)
        else:
            new = [each.id for each in store.reserve(run, [], may_reserve_more=True).handover.new]
    json.dump(new, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
