"""Poll once for batches, as the watcher of `dags/digits_retraining.py` does, and create an event for the result.

python announce.py INCOMING

The trigger is the real one; a run of a DAG replaces the triggerer, which would store its event.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from airflow.sdk import DAG, Asset, task

from ptjob_provider.retraining.triggers import DataArrivalTrigger

ARRIVED = Asset("digits-incoming")

with DAG("announce", schedule=None) as dag:

    @task(outlets=[ARRIVED])
    def announce(*, outlet_events: Any = None, params: Any = None) -> None:
        """Create the event that Airflow creates for a trigger's."""
        outlet_events[ARRIVED].extra.update({"from_trigger": True, "payload": params["payload"]})

    announce()


async def look(incoming: str) -> Any:
    """Return the payload of the first event, which contains all batches."""
    async for event in DataArrivalTrigger(incoming, poll_seconds=1, events="together").run():
        return event.payload
    return None


if __name__ == "__main__":
    payload = asyncio.run(look(sys.argv[1]))
    sys.exit(dag.test(run_conf={"payload": payload}).state != "success")
