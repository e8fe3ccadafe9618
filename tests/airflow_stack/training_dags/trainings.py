"""DAGs whose task instances the tests of the Training page fill with XComs; nothing of them runs."""

from airflow.sdk import DAG

from ptjob_provider.airflow import PyTorchJobOperator

for name in ("digits", "hidden"):
    with DAG(name, schedule=None):
        PyTorchJobOperator(task_id="train", image="digits")
        PyTorchJobOperator.partial(task_id="sweep", image="digits").expand(args=[["--lr", "0.1"], ["--lr", "0.01"]])
