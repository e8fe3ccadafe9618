"""Use the champion: one run for each model that was promoted, or restored by a rollback.

The asset's event contains all data as plain JSON, and this file does not import ptjob-provider, so it can run in an
environment without that package. `model.uri` is `pvc://claim/path`: a pod that mounts that claim read-only finds the
model at that path. A run always uses the newest event, even if it starts late; the champion's number identifies it.

To adapt it: replace the body of `serve`: copy the model, restart a server, write to a registry. A server that mounts
the claim does not need Airflow: it can read `champion/current.json`, which is always complete.

`python digits_champion.py` runs it once, without a scheduler, if the file is in the DAG folder.
"""

from __future__ import annotations

import sys
from typing import Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import DAG, Asset, task

CHAMPION = Asset("digits-champion")

with DAG("digits_champion", schedule=[CHAMPION], max_active_runs=1, doc_md=__doc__) as dag:

    @task(inlets=[CHAMPION])
    def serve(*, inlet_events: Any = None) -> dict[str, Any]:
        """Print and return the data of the newest event."""
        if not len(inlet_events[CHAMPION]):
            raise AirflowSkipException("there is no champion yet")
        champion: dict[str, Any] = dict(inlet_events[CHAMPION][-1].extra)
        model = champion["model"]
        print(f"champion {champion['generation']}: accuracy {champion['accuracy']:.4f}")
        print(f"model {model['uri']}, sha256 {model['sha256']}")
        return champion

    serve()

if __name__ == "__main__":
    sys.exit(dag.test().state != "success")
