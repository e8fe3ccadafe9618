"""A DAG that runs when something is noted on a claim; its one task returns what it was told."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Asset, AssetWatcher, task

from ptjob_provider.retraining.triggers import ClaimArrivalTrigger

INCOMING = Asset("incoming", watchers=[AssetWatcher(name="notes", trigger=ClaimArrivalTrigger("data"))])

with DAG("arrivals", schedule=[INCOMING]):

    @task
    def tell(triggering_asset_events: Any = None) -> list[dict[str, Any]]:
        """Return the payloads of the events that started the run."""
        return [event.extra["payload"] for event in triggering_asset_events[INCOMING]]

    tell()
