"""Trainings for the documentation's pictures: one that is killed at first, and one whose data are wrong."""

from datetime import timedelta

from airflow.sdk import DAG

from ptjob_provider.airflow import PyTorchJobOperator

for name, ends in {"digits": "killed", "segments": "raises"}.items():
    with DAG(name, schedule=None):
        PyTorchJobOperator(
            task_id="train",
            image="program",
            args=[ends],
            workers=3,
            volumes=["runs:/claim"],
            env={"RUNS": "/claim"},
            model="/claim/model.pt",
            deferrable=True,
            retries=2 if ends == "killed" else 0,
            retry_delay=timedelta(seconds=1),
        )
