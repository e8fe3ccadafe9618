"""Two DAGs that are run by what arrives, in a directory and in a bucket; each run writes down what it was told of."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset, AssetWatcher, task

from ptjob_provider.airflow.data_arrival import DataArrivalTrigger

SOURCES = json.loads(os.environ["ARRIVALS_SOURCES"])
SEEN = Path(os.environ["ARRIVALS_SEEN"])


@task
def write_down(name: str, **context: Any) -> None:
    """Write one line for each batch of the events that this run was made for."""
    events = [event for found in context["triggering_asset_events"].values() for event in found]
    batches = [batch["id"] for event in events for batch in event.extra["payload"]["batches"]]
    with (SEEN / name).open("a") as file:
        file.writelines(f"{batch}\n" for batch in batches)


for name, arguments in SOURCES.items():
    watcher = AssetWatcher(name="arrivals", trigger=DataArrivalTrigger(**arguments))
    with DAG(f"consume_{name}", schedule=[Asset(name, watchers=[watcher])], catchup=False):
        write_down(name)
