"""Two DAGs scheduled on data arrival, in a directory and in a bucket; each run records all events of its asset.

It does not record only those that triggered it: Airflow 3.3 creates no run for an event that arrives while another one
is waiting.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset, AssetWatcher, task

from ptjob_provider.retraining.triggers import DataArrivalTrigger

SOURCES = json.loads(os.environ["ARRIVALS_SOURCES"])
SEEN = Path(os.environ["ARRIVALS_SEEN"])


@task
def write_down(name: str, **context: Any) -> None:
    """Append one line per batch of every event of the asset."""
    events = context["inlet_events"][Asset(name)]
    lines = [f"{event.timestamp.isoformat()} {batch['id']}" for event in events for batch in batches(event)]
    with (SEEN / name).open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def batches(event: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = event.extra["payload"]["batches"]
    return found


for name, arguments in SOURCES.items():
    incoming = Asset(name, watchers=[AssetWatcher(name="arrivals", trigger=DataArrivalTrigger(**arguments))])
    with DAG(f"consume_{name}", schedule=[incoming], catchup=False):
        write_down.override(inlets=[incoming])(name)
