"""Use the champion: a run for each model that was promoted, or returned to by a rollback.

Everything is in the asset's event, as plain JSON; nothing of ptjob-provider is imported here, so that this file may be
somebody else's, in another team's Airflow environment. `model.uri` is `pvc://claim/path`: a pod that mounts that claim,
read-only, finds the file at that path. Who comes late reads the newest event, and the number tells which that is.

To make it yours: replace what is done with the champion in `serve`: copy the model, restart a server, write to a
registry. A server that has the claim mounted needs no Airflow at all: `champion/current.json` there is always whole.

`python digits_champion.py` runs it once, without a scheduler, if it lies in the DAG folder.
"""

from __future__ import annotations

import sys
from typing import Any

from airflow.sdk import DAG, Asset, task
from airflow.sdk.exceptions import AirflowSkipException

CHAMPION = Asset("digits-champion")

with DAG("digits_champion", schedule=[CHAMPION], max_active_runs=1, doc_md=__doc__) as dag:

    @task(inlets=[CHAMPION])
    def serve(*, inlet_events: Any = None) -> dict[str, Any]:
        """Print and return what the newest event says."""
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
