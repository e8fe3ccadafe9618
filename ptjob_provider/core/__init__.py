"""Run training jobs; the part of the package that is independent of Airflow and Kubeflow Pipelines."""
