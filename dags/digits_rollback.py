"""Return to the previous champion, or to any earlier one. You start it by hand.

A job copies the older model, checks its hash, and makes the copy the champion under a new number. Nothing is trained,
evaluated or deleted. Consumers get the same event as after a promotion. The next run of `digits_retraining.py` starts
from this champion, and its model must be better.

To adapt it: `IMAGE`, `VOLUMES` and the champion's folder as in `digits_retraining.py`.

The parameter `to` is the number of a champion; 0 means the previous one. A run that is cleared and repeated does not go
back further. `python digits_rollback.py` runs it once, without a scheduler, if the file is in the DAG folder.
"""

from __future__ import annotations

import sys
from typing import Any

from airflow.sdk import DAG, Asset, Param, task

from ptjob_provider.airflow.operators import PyTorchJobOperator

IMAGE = "digits"
VOLUMES = ["digits:/data"]

CHAMPION = Asset("digits-champion")

with DAG(
    "digits_rollback",
    schedule=None,
    max_active_runs=1,
    doc_md=__doc__,
    params={"image": Param(IMAGE, type="string"), "to": Param(0, type="integer", minimum=0)},
) as dag:
    rollback = PyTorchJobOperator(
        task_id="rollback",
        name="digits-rollback",
        image="{{ params.image }}",
        command=["python", "rollback.py"],
        args=["--champion_dir=/data/champion", "--by={{ run_id }}", "--to={{ params.to }}"],
        cpu=1,
        memory="2Gi",
        volumes=VOLUMES,
        model="/data/champion/rollbacks/{{ run_id }}/model.pt",
        tfevents="/data/logs/{{ run_id }}/rollback",
        retries=2,
    )

    @task(outlets=[CHAMPION])
    def publish(restored: dict[str, Any], *, outlet_events: Any = None) -> dict[str, Any]:
        """Announce the restored champion to consumers."""
        scalars = restored["tfevents"]["scalars"]
        champion = {
            "generation": int(scalars["promotion/generation"]),
            "accuracy": scalars["champion/accuracy"],
            "model": {name: restored["model"][name] for name in ("uri", "sha256")},
        }
        outlet_events[CHAMPION].extra.update(champion)
        print(f"champion {champion['generation']}: accuracy {champion['accuracy']:.4f}, {champion['model']['uri']}")
        return champion

    publish(rollback.output)

if __name__ == "__main__":
    sys.exit(dag.test().state != "success")
