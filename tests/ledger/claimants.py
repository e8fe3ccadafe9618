"""Program that reserves batches from a ledger at a given time and prints their ids: `python claimants.py …`."""

from __future__ import annotations

import json
import sys
import time

from ptjob_provider.retraining.ledger import Claimant, LedgerStore
from ptjob_provider.retraining.reservations import Batch


def main(url: str, name: str, run_id: str, moment: str, known: str) -> None:
    """Record the given batches, then reserve all new ones."""
    time.sleep(max(0.0, float(moment) - time.time()))
    claimant = Claimant(dag_id="retrain", run_id=run_id, training_task_id="train")
    batches = [Batch(id=each, uri=f"s3://in/{each}") for each in json.loads(known)]
    with LedgerStore(url, name) as store:
        store.record(batches, source="drop", until=run_id)
        claimed = store.claim(claimant, [], may_claim_more=True)
    json.dump([each.id for each in claimed.handover.new], sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
