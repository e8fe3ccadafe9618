"""A process that claims from a ledger at a given moment and writes down what it got: `python claimants.py …`."""

from __future__ import annotations

import json
import sys
import time

from ptjob_provider.retraining.ledger import Claimant, LedgerStore
from ptjob_provider.retraining.reservations import Batch, ReservationState


def main(url: str, name: str, run_id: str, moment: str, known: str) -> None:
    """Record the batches that this process knows, claim, and give up or keep what it got, as its number says."""
    time.sleep(max(0.0, float(moment) - time.time()))
    claimant = Claimant(dag_id="retrain", run_id=run_id, training_task_id="train")
    batches = [Batch(id=each, uri=f"s3://in/{each}") for each in json.loads(known)]
    with LedgerStore(url, name) as store:
        store.record(batches, source="drop", until=run_id)
        decisions = [
            (claim, ReservationState.FREE)
            for claim in store.open_claims()
            if claim.claimant.run_id.startswith("failed")
        ]
        claimed = store.claim(claimant, decisions, may_claim_more=True)
        released = [claim.claimant.run_id for claim, state in claimed.settled if state is ReservationState.FREE]
    json.dump({"run": run_id, "new": [each.id for each in claimed.handover.new], "released": released}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
